"""Sample inputs of pooling. The elements are distinct in every dtype, so that finite differences meet no tie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.commands.pool import max_pool_places
from nnc.commands.windows import window_shape
from nnc.graph import reference
from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(9)

GEOMETRIES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7), {"window": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (1,)}),
    ((1, 2, 5, 4), {"window": (2, 3), "stride": (1, 2), "padding": ((1, 0), (0, 1)), "dilation": (2, 1)}),
    ((4, 6), {"window": (2, 2), "stride": (2, 3), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}),
    (
        (1, 3, 3, 3),
        {"window": (2, 2, 2), "stride": (1, 1, 1), "padding": ((0, 1), (1, 0), (0, 0)), "dilation": (1, 1, 1)},
    ),
    ((0, 4), {"window": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}),
]


def _distinct(*shape: int) -> np.ndarray:
    n = math.prod(shape)
    return (_RNG.permutation(n).reshape(shape) - n // 2) * 0.25


def _samples() -> list[Sample]:
    samples = []
    for shape, params in GEOMETRIES:
        at = len(shape) - len(params["window"])
        out = window_shape("pool", shape[at:], **params)
        x, ct = _distinct(*shape), _distinct(*shape[:at], *out)
        places = reference[max_pool_places](x, **params)
        for last in (False, True):
            spatial = {"spatial": shape[at:], **params}
            if last:
                params, spatial = ({**given, "channels_last": True} for given in (params, spatial))
                x, ct, places = (np.moveaxis(a, at - 1, -1) for a in (x, ct, places))
            samples += [
                Sample("max_pool", (x,), params),
                Sample("max_pool_places", (x,), params),
                Sample("max_pool_both", (x,), params),
                Sample("pick_pool", (x, places), params),
                Sample("pick_pool_input_grad", (ct, places), spatial),
                Sample("sum_pool", (x,), params),
                Sample("sum_pool_input_grad", (ct,), spatial),
            ]
            if at == 0:
                break
    return samples


SAMPLES: list[Sample] = _samples()
