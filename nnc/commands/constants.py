"""Commands that make a tensor of nothing: one value everywhere, and the places along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.rules import Counted, Number
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Rules, Value


def _full_infer(*, shape: tuple[int, ...], dtype: Any, value: Any) -> TensorSpec:
    return TensorSpec(shape, dtype if dtype == dtypes.TAPE else dtypes.as_dtype(dtype))


def _full_call(*, shape: tuple[int, ...], dtype: Any, value: Any) -> Callable[[], Any]:
    return lambda: np.zeros(shape, dtype) if type(value) is int and not value else np.full(shape, value, dtype)


full: Command = register(
    "full",
    Rules(
        infer=_full_infer,
        reference=lambda *, shape, dtype, value: np.full(shape, value, dtype),
        numpy_call=_full_call,
        scalar="value",
        exact=True,
        batch=lambda size, operands, batched, **params: ((full(**params),), (False,)),
        cost=lambda **params: 0,
    ),
    arity=0,
    numpy_into=lambda **params: lambda out: np.copyto(out, params["value"], casting="unsafe"),
    elements=Number(lambda *, shape, dtype, value: value),
)


def _iota_infer(*, shape: tuple[int, ...], dtype: Any, axis: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.as_dtype(dtype))


def _iota_reference(*, shape: tuple[int, ...], dtype: Any, axis: int) -> Any:
    steps = np.arange(shape[axis]).astype(dtype)
    return np.broadcast_to(steps.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


iota: Command = register(
    "iota",
    Rules(
        infer=_iota_infer,
        reference=_iota_reference,
        batch=lambda size, operands, batched, **params: ((iota(**params),), (False,)),
        cost=lambda **params: 0,
    ),
    arity=0,
    elements=Counted(),
)


def ones_like(x: Value) -> Value:
    """Returns a one of the spec of `x`."""
    return full_like(x, 1)


def full_like(x: Value, value: Any) -> Value:
    """`value` everywhere, with the spec and the weakness of `x`."""
    result, weak = full(shape=x.spec.shape, dtype=x.spec.dtype, value=value), getattr(x, "weak", False)
    return result.as_weak(weak) if weak else result
