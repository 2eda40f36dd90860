"""Sample inputs of the convolutions: the three commands on each of a few geometries, with the channels first and last."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.commands.windows import window_shape
from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(8)

GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 4, 7), (6, 2, 3), {"stride": (2,), "padding": ((1, 2),), "dilation": (2,), "groups": 2}),
    ((2, 3, 5, 4), (2, 3, 3, 2), {"stride": (2, 1), "padding": ((1, 0), (0, 2)), "dilation": (1, 2), "groups": 1}),
    ((1, 3, 4, 4), (3, 1, 2, 2), {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 3}),
    (
        (1, 2, 4, 3, 3), (2, 2, 2, 1, 3),
        {"stride": (3, 1, 2), "padding": ((1, 1), (0, 0), (1, 1)), "dilation": (1, 1, 1), "groups": 1},
    ),
    ((0, 2, 4), (2, 2, 2), {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}),
]  # fmt: skip


def _samples() -> list[Sample]:
    samples = []
    for x_shape, w_shape, params in GEOMETRIES:
        spatial, kernel = x_shape[2:], w_shape[2:]
        out = window_shape("conv", spatial, kernel, params["stride"], params["padding"], params["dilation"])
        x, w, ct = (_RNG.normal(size=shape) for shape in (x_shape, w_shape, (x_shape[0], w_shape[0], *out)))
        samples += [
            Sample("conv", (x, w), params),
            Sample("conv_input_grad", (ct, w), {"spatial": spatial, **params}),
            Sample("conv_weight_grad", (x, ct), {"kernel": kernel, **params}),
        ]
        params = {**params, "channels_last": True}
        x, ct = np.moveaxis(x, 1, -1), np.moveaxis(ct, 1, -1)
        samples += [
            Sample("conv", (x, w), params),
            Sample("conv_input_grad", (ct, w), {"spatial": spatial, **params}),
            Sample("conv_weight_grad", (x, ct), {"kernel": kernel, **params}),
        ]
    return samples


SAMPLES: list[Sample] = _samples()
