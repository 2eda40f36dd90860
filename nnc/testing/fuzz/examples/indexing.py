"""Examples of commands that read and write at indices: inside the axes, and outside where the mode defines the result."""

from __future__ import annotations

from typing import Any

from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.examples.draw import Draw, Example, NDArray, Rng, Shape, flag, float_dtype, one_of, shape, size

_INTEGERS = (dtypes.int64, dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8)


def _dtype(rng: Rng) -> dtypes.DType:
    return (
        float_dtype(rng) if flag(rng, 0.7) else one_of(rng, dtypes.int32, dtypes.int64, dtypes.bool_, dtypes.complex64)
    )


def _indices(rng: Rng, n: int, shape: Shape, mode: str) -> NDArray:
    dtype = one_of(rng, *_INTEGERS)
    low, high = (0, n) if mode == "error" else (0 if dtype in dtypes.UNSIGNED else -n - 3, n + 4)
    return rng.integers(low, max(high, low + 1), shape).astype(dtype)


def _places(rng: Rng, modes: tuple[str, ...]) -> tuple[Shape, Shape, list[NDArray], dict[str, Any]]:
    """Returns the shape of the indexed operand, the shape of the rest of its axes, the indices, the parameters."""
    whole = tuple(max(1, size(rng, 8)) for _ in range(int(rng.integers(1, 4))))
    batch = int(one_of(rng, 0, 0, 0, 1)) if len(whole) > 1 else 0
    count = int(rng.integers(1, len(whole) - batch + 1))
    axes = tuple(int(a) + batch for a in rng.permutation(len(whole) - batch)[:count])
    mode = one_of(rng, *modes)
    at = (*whole[:batch], *shape(rng, 0, 2))
    indices = [_indices(rng, whole[axis], at, mode) for axis in axes]
    rest = tuple(n for axis, n in enumerate(whole) if axis >= batch and axis not in axes)
    return whole, rest, indices, {"axes": axes, "batch": batch, "mode": mode}


def _gather(rng: Rng) -> Example:
    whole, _, indices, params = _places(rng, ("error", "clip", "wrap", "fill", "drop"))
    return (TensorSpec(whole, _dtype(rng)), *indices), params


def _scatter(rng: Rng) -> Example:
    whole, rest, indices, params = _places(rng, ("error", "clip", "wrap", "drop"))
    dtype, op = _dtype(rng), one_of(rng, "set", "add", "add", "mul", "min", "max")
    updates = TensorSpec((*indices[0].shape, *rest), dtype)
    return (TensorSpec(whole, dtype), updates, *indices), {**params, "op": op}


def _part(rng: Rng) -> tuple[Shape, Shape, list[NDArray], str]:
    whole = shape(rng, 0, 3)
    sizes = tuple(int(rng.integers(0, n + 1)) for n in whole)
    mode = one_of(rng, "error", "clip")
    starts = [_indices(rng, n - k + 1, (), mode) for n, k in zip(whole, sizes, strict=True)]
    return whole, sizes, starts, mode


def _dynamic_slice(rng: Rng) -> Example:
    whole, sizes, starts, mode = _part(rng)
    return (TensorSpec(whole, _dtype(rng)), *starts), {"sizes": sizes, "mode": mode}


def _dynamic_update_slice(rng: Rng) -> Example:
    whole, sizes, starts, mode = _part(rng)
    dtype = _dtype(rng)
    return (TensorSpec(whole, dtype), TensorSpec(sizes, dtype), *starts), {"mode": mode}


def _pick(rng: Rng) -> Example:
    lead, n = shape(rng, 0, 2), max(1, size(rng))
    mode = one_of(rng, "error", "clip", "wrap")
    return (TensorSpec((*lead, n), float_dtype(rng)), _indices(rng, n, (*lead, int(rng.integers(1, 3))), mode)), {
        "mode": mode
    }


EXAMPLES: dict[str, Draw] = {
    "gather": _gather,
    "scatter": _scatter,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pick_log_softmax": _pick,
}
