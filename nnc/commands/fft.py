"""Discrete Fourier transforms, not normalised: the functions of nnc.numpy.fft scale their results.

With w = exp(-2πi / n), a transform along an axis of size n is y[k] = Σ_j x[j] w^(jk), the inverse one has conj(w). References run
pocketfft through NumPy, in the precision of the operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full
from nnc.commands.elementwise import COMPLEX, Accepts, conj, mul
from nnc.commands.rules import check_axes, check_axis, check_dtype, register_linear
from nnc.commands.shape import broadcast_to, concatenate
from nnc.errors import ShapeError, user_error
from nnc.graph import Command, TensorSpec
from nnc.graph.rules import Linear, Value

NDArray = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_REAL: Accepts = (lambda dtype: dtype in (dtypes.float32, dtypes.float64), "float32 or float64")


def _cost(x: TensorSpec, n: int) -> int:
    """About 5 n log2 n operations for each of the transforms of size n (Cooley and Tukey, 1965)."""
    return 5 * x.size * max(1, n.bit_length())


def _replaced(x: TensorSpec, axis: int, n: int) -> Shape:
    return tuple(n if i == axis else size for i, size in enumerate(x.shape))


def _check_points(name: str, x: TensorSpec, axis: int, n: int) -> None:
    if n < 1:
        problem = f"a transform along axis {axis} would have {n} points."
        fix = "transform an axis with at least one element."
        raise user_error(ShapeError, name, problem, operands={"x": x}, fix=fix)


# -- complex to complex ------------------------------------------------------------------------------------------------


def _fft_infer(x: TensorSpec, *, axes: Shape, inverse: bool = False) -> TensorSpec:
    check_dtype("fft", x, *COMPLEX)
    for axis in check_axes("fft", axes, x.ndim):
        _check_points("fft", x, axis, x.shape[axis])
    if not axes:
        raise user_error(
            ShapeError, "fft", "axes is empty.", operands={"x": x}, fix="name at least one axis to transform."
        )
    return x


def _fft_reference(x: NDArray, *, axes: Shape, inverse: bool = False) -> NDArray:
    with np.errstate(all="ignore"):
        y = np.fft.ifftn(x, axes=axes, norm="forward") if inverse else np.fft.fftn(x, axes=axes, norm="backward")
    return y.astype(x.dtype, copy=False)


fft: Command = register_linear(
    "fft",
    _fft_infer,
    _fft_reference,
    lambda ct, x, **params: fft(ct, **params),  # the matrix w^(jk) is symmetric
    any_arrays=True,
    cost=lambda x, axes, inverse=False: sum(_cost(x, x.shape[axis]) for axis in axes),
)

# -- real to half of the complex, and back -----------------------------------------------------------------------------


def _weighted(x: Value, axis: int, points: int, ends: float, middle: float) -> Value:
    """`x`, half of a transform of `points` points: times `ends` at the bins that stand for themselves (0, and points / 2
    where that is whole), times `middle` at the bins that also stand for their conjugates.
    """
    pairs = (points - 1) // 2
    counts = [(1, ends), (pairs, middle), (points // 2 - pairs, ends)]
    parts = [full(shape=(count,), dtype=x.spec.dtype, value=value) for count, value in counts if count]
    weights = concatenate(*parts, axis=0) if len(parts) > 1 else parts[0]
    return mul(x, broadcast_to(weights, shape=x.spec.shape, axes=(axis,)))


def _rfft_infer(x: TensorSpec, *, axis: int) -> TensorSpec:
    check_dtype("rfft", x, *_REAL)
    axis = check_axis("rfft", axis, x.ndim)
    _check_points("rfft", x, axis, x.shape[axis])
    return x.update(shape=_replaced(x, axis, x.shape[axis] // 2 + 1), dtype=dtypes.complex_dtype(x.dtype))


def _rfft_reference(x: NDArray, *, axis: int) -> NDArray:
    with np.errstate(all="ignore"):
        return np.fft.rfft(x, axis=axis).astype(dtypes.complex_dtype(x.dtype), copy=False)


def _rfft_transpose(ct: Value, x: Linear, *, axis: int) -> Value:
    """Re Σ_k ct[k] w^(jk). `irfft` conjugates w^(jk), so it gets conj(ct), and counts the middle bins twice, so they are halved."""
    axis, points = axis % x.spec.ndim, x.spec.shape[axis]
    return irfft(_weighted(conj(ct), axis, points, 1.0, 0.5), axis=axis, points=points)


rfft: Command = register_linear(
    "rfft", _rfft_infer, _rfft_reference, _rfft_transpose, any_arrays=True,
    cost=lambda x, axis: _cost(x, x.shape[axis]) // 2,
)  # fmt: skip


def _irfft_infer(x: TensorSpec, *, axis: int, points: int) -> TensorSpec:
    check_dtype("irfft", x, *COMPLEX)
    axis = check_axis("irfft", axis, x.ndim)
    _check_points("irfft", x, axis, points)
    if x.shape[axis] != points // 2 + 1:
        problem = f"{points} points need {points // 2 + 1} bins, axis {axis} has {x.shape[axis]}."
        fix = "use nnp.fft.irfft, or cut or pad the axis before."
        raise user_error(ShapeError, "irfft", problem, operands={"x": x}, fix=fix)
    return x.update(shape=_replaced(x, axis, points), dtype=dtypes.real_dtype(x.dtype))


def _irfft_reference(x: NDArray, *, axis: int, points: int) -> NDArray:
    with np.errstate(all="ignore"):
        return np.fft.irfft(x, points, axis, norm="forward").astype(dtypes.real_dtype(x.dtype), copy=False)


def _irfft_transpose(ct: Value, x: Linear, *, axis: int, points: int) -> Value:
    """Each bin gets conj(rfft(ct)), the middle ones twice."""
    axis = axis % x.spec.ndim
    return _weighted(conj(rfft(ct, axis=axis)), axis, points, 1.0, 2.0)


irfft: Command = register_linear(
    "irfft", _irfft_infer, _irfft_reference, _irfft_transpose, any_arrays=True,
    cost=lambda x, axis, points: _cost(x, points),
)  # fmt: skip
