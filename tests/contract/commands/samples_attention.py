"""Sample inputs of attention, its tangent and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.commands.attention import attention
from nnc.graph import reference
from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(31)


def _normal(*shape: int) -> Any:
    return _RNG.normal(size=shape)


def _rows(operands: tuple[Any, ...], wrt: tuple[int, ...], **params: Any) -> list[Sample]:
    """The command and its two relatives on the same operands."""
    out, logarithms = reference[attention](*operands, **params)
    floats = tuple(range(4 if params["biased"] else 3))
    tangents = [_normal(*operands[i].shape) for i in wrt]
    around = (*tangents, *operands, out, logarithms)
    moving = [i for i, x in enumerate(around) if x.dtype.kind == "f"]
    of_gradient = (_normal(*out.shape), _normal(*logarithms.shape), *operands, out, logarithms)
    back = [i for i, x in enumerate(of_gradient) if x.dtype.kind == "f"]
    more: dict[str, Any] = {"wrt": wrt, **params}
    single = ("float32", "float64")  # their logarithms have the dtype of sums, so 16-bit operands do not fit each other
    return [
        Sample("attention", operands, params, differentiable=floats),
        Sample("attention_tangent", around, more, differentiable=tuple(moving), dtypes=single),
        Sample("attention_gradient", of_gradient, more, differentiable=tuple(back), dtypes=single),
    ]


_ONES: dict[str, Any] = {"scale": 1.0, "reach": (None, None), "biased": False}
_MASK = np.asarray([[True, False, True], [True, True, False]])
_RANGES = np.asarray([[0, 2], [1, 4], [2, 3]], np.int32)

SAMPLES: list[Sample] = [
    *_rows((_normal(2, 1, 3), _normal(3, 1, 3), _normal(3, 1, 2)), (0, 1, 2), **_ONES),
    *_rows((_normal(2, 4, 2), _normal(3, 2, 2), _normal(3, 2, 1), _normal(4, 1, 3), _MASK[None]), (0, 3), scale=0.5,
           reach=(None, None), biased=True),
    *_rows((_normal(2, 3, 1, 2), _normal(2, 3, 1, 2), _normal(2, 3, 1, 2), _MASK[:, None, None]), (1, 2), scale=0.7,
           reach=(1, 0), biased=False),
    *_rows((_normal(3, 2, 2), _normal(4, 1, 2), _normal(4, 1, 3), _RANGES[None]), (0, 2), scale=0.7, reach=(None, None),
           biased=False),
    Sample("attention", (_normal(2, 1, 2), _normal(0, 1, 2), _normal(0, 1, 2)), _ONES, differentiable=()),
    Sample("attention", (_normal(0, 1, 2), _normal(2, 1, 2), _normal(2, 1, 2)), _ONES, differentiable=()),
]  # fmt: skip
