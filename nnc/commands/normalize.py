"""Softmax and its relatives as single commands, by which lowering replaces the many small ones that users' functions are traced to.

With the largest element m of each row (0 where that is infinite) and T = sum of exp(x - m) over `axes` (1 where that is 0):

    softmax = exp(x - m) / T      log_softmax = x - m - log(T)      logsumexp = m + log(T)

so nothing overflows, and a row of -inf has probabilities 0. Elements equal to m are counted, and log(T) is log1p of their number
less 1 and of the other terms, so that it keeps its digits where these are small. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.index import gather
from nnc.commands.reduce import expand, reduce_max, reduce_sum
from nnc.commands.rules import batch_leading, check_axes, check_dtype, expansion, of_tangent
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import Command, TensorSpec, infer_specs, reference, register
from nnc.graph.rules import Derivative, Infer, InPlace, Reference, Rules, Tangents, Value

Axes = tuple[int, ...]
NDArray = np.ndarray[Any, Any]


def _infer(name: str, keeps_axes: bool) -> Infer:
    def rule(x: TensorSpec, *, axes: Axes) -> TensorSpec:
        check_dtype(name, x, *ew.FLOAT)
        removed = check_axes(name, axes, x.ndim)
        return x if keeps_axes else x.update(shape=tuple(n for i, n in enumerate(x.shape) if i not in removed))

    return rule


def _parts(x: NDArray, axes: Axes) -> tuple[NDArray, NDArray]:
    """(x - m, m) of the largest elements m, in the dtype that sums need."""
    x = x.astype(dtypes.accumulator(x.dtype), copy=False)
    top = np.max(x, axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), np.zeros((), x.dtype), top)
    shifted = np.asarray(x - top)  # NumPy makes a scalar of 0-d arrays
    return shifted, top


def _log_total(shifted: NDArray, axes: Axes) -> NDArray:
    """log T, -inf where it is 0."""
    largest = shifted == 0
    others = np.where(largest, np.zeros((), shifted.dtype), np.exp(shifted))
    count = np.sum(largest, axes, keepdims=True, dtype=shifted.dtype)
    return np.asarray(np.log1p((count - 1) + np.sum(others, axes, keepdims=True)))


def _finite(logarithm: NDArray) -> NDArray:
    return np.where(logarithm == -np.inf, np.zeros((), logarithm.dtype), logarithm)


def _softmax(x: NDArray, *, axes: Axes) -> NDArray:
    with np.errstate(all="ignore"):
        shifted, _ = _parts(x, axes)
        np.exp(shifted, out=shifted)
        total = np.sum(shifted, axes, keepdims=True)
        shifted /= np.where(total == 0, np.ones((), total.dtype), total)
        return shifted.astype(x.dtype, copy=False)


def _log_softmax(x: NDArray, *, axes: Axes) -> NDArray:
    with np.errstate(all="ignore"):
        shifted, _ = _parts(x, axes)
        shifted -= _finite(_log_total(shifted, axes))
        return shifted.astype(x.dtype, copy=False)


def _logsumexp(x: NDArray, *, axes: Axes) -> NDArray:
    with np.errstate(all="ignore"):
        shifted, top = _parts(x, axes)
        out = _log_total(shifted, axes) + top
        return np.asarray(np.squeeze(out, axes)).astype(x.dtype)


def _tangent_of_softmax(t: Value, x: Value, y: Value, *, axes: Axes) -> Value:
    return y * (t - expand(reduce_sum(t * y, axes=axes), y.spec, axes))


def _tangent_of_log_softmax(t: Value, x: Value, out: Value, *, axes: Axes) -> Value:
    y = softmax(x, axes=axes)
    return t - expand(reduce_sum(t * y, axes=axes), y.spec, axes)


def _tangent_of_logsumexp(t: Value, x: Value, out: Value, *, axes: Axes) -> Value:
    largest = float(ml_dtypes.finfo(x.spec.dtype).max)  # type: ignore[no-untyped-call]
    bounded = ew.minimum(x, constants.full_like(x, largest))  # infinite elements share the whole
    return reduce_sum(t * softmax(bounded, axes=axes), axes=axes)


def _register(name: str, function: Reference, tangent: Callable[..., Value], keeps_axes: bool = True) -> Command:
    rules = Rules(
        infer=_infer(name, keeps_axes),
        reference=function,
        derivative=of_tangent(tangent),
        batch=batch_leading(name),
        inplace=InPlace(((0, 0),)) if keeps_axes else None,
        cost=lambda x, axes: 4 * x.size,
    )
    return register(name, rules)


softmax = _register("softmax", _softmax, _tangent_of_softmax)
log_softmax = _register("log_softmax", _log_softmax, _tangent_of_log_softmax)
logsumexp = _register("logsumexp", _logsumexp, _tangent_of_logsumexp, keeps_axes=False)

# -- the log-probability of chosen classes -----------------------------------------------------------------------------

# pick_log_softmax[..., i] = log_softmax(x)[..., index[..., i]], over the last axis; the other log-probabilities are never made.
# `mode` means the same as for `gather`. A mean of its negatives is the cross entropy.


PICK_MODES = ("error", "clip", "wrap")  # the others read values that are no elements of x


def _gather_params(x: Any, mode: str) -> dict[str, Any]:
    return {"axes": (x.ndim - 1,), "batch": x.ndim - 1, "mode": mode}


def _pick_infer(x: TensorSpec, index: TensorSpec, *, mode: str) -> TensorSpec:
    check_dtype("pick_log_softmax", x, *ew.FLOAT)
    check_axes("pick_log_softmax", (-1,), x.ndim)
    check_choice("pick_log_softmax", "mode", mode, PICK_MODES)
    if index.ndim != x.ndim:
        problem = f"the index has {index.ndim} axes, x has {x.ndim}."
        fix = "give the index an axis of size 1 for one element of each row."
        raise user_error(ShapeError, "pick_log_softmax", problem, operands={"x": x, "index": index}, fix=fix)
    return infer_specs(gather, (x, index), _gather_params(x, mode))[0]


def _pick(x: NDArray, index: NDArray, *, mode: str) -> NDArray:
    with np.errstate(all="ignore"):
        shifted, top = _parts(x, (x.ndim - 1,))
        logarithm = _finite(_log_total(shifted, (x.ndim - 1,)))
        chosen = reference[gather](x.astype(top.dtype, copy=False), index, **_gather_params(x, mode))
        return np.asarray((chosen - top) - logarithm).astype(x.dtype)


def _pick_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, mode: str) -> Tangents:
    (x, index), t = primals, tangents[0]
    last = (x.spec.ndim - 1,)
    mean = reduce_sum(t * softmax(x, axes=last), axes=last)
    return (gather(t, index, **_gather_params(x.spec, mode)) - expand(mean, outputs[0].spec, last),)


pick_log_softmax = register(
    "pick_log_softmax",
    Rules(
        infer=_pick_infer,
        reference=_pick,
        derivative=Derivative(_pick_jvp),
        batch=batch_leading("pick_log_softmax"),
        cost=lambda x, index, mode: 4 * x.size,
    ),
    arity=2,
)


# -- their form in printed kernels -----------------------------------------------------------------------------------


def _expanded_parts(x: Value, axes: Axes) -> tuple[Value, Value]:
    """(x - m, m), in the dtype that sums need."""
    x = ew.in_dtype(x, dtypes.accumulator(x.spec.dtype))
    top = reduce_max(x, axes=axes)
    top = ew.select(ew.isinf(top), constants.full_like(top, 0), top)
    return ew.sub(x, expand(top, x.spec, axes)), top


def _expanded_log_total(shifted: Value, axes: Axes, nothing: float) -> Value:
    """log T, or `nothing` where T is 0."""
    zero = constants.full_like(shifted, 0)
    largest = ew.equal(shifted, zero)
    count = reduce_sum(ew.convert(largest, dtype=shifted.spec.dtype), axes=axes)
    others = reduce_sum(ew.select(largest, zero, ew.exp(shifted)), axes=axes)
    rest = ew.add(ew.sub(count, constants.full_like(count, 1)), others)
    is_empty = ew.equal(rest, constants.full_like(rest, -1))
    return ew.select(is_empty, constants.full_like(rest, nothing), ew.log1p(rest))


def _expanded_total(terms: Value, axes: Axes) -> Value:
    """T, or 1 where it is 0."""
    total = reduce_sum(terms, axes=axes)
    is_empty = ew.equal(total, constants.full_like(total, 0))
    return ew.select(is_empty, constants.full_like(total, 1), total)


def _expand_softmax(x: Value, *, axes: Axes) -> Value:
    shifted, _ = _expanded_parts(x, axes)
    terms = ew.exp(shifted)
    total = _expanded_total(terms, axes)
    return ew.in_dtype(ew.mul(terms, expand(ew.reciprocal(total), shifted.spec, axes)), x.spec.dtype)


def _expand_log_softmax(x: Value, *, axes: Axes) -> Value:
    shifted, _ = _expanded_parts(x, axes)
    logarithm = _expanded_log_total(shifted, axes, 0)
    return ew.in_dtype(ew.sub(shifted, expand(logarithm, shifted.spec, axes)), x.spec.dtype)


def _expand_logsumexp(x: Value, *, axes: Axes) -> Value:
    shifted, top = _expanded_parts(x, axes)
    return ew.in_dtype(ew.add(_expanded_log_total(shifted, axes, -np.inf), top), x.spec.dtype)


def _expand_pick(x: Value, index: Value, *, mode: str) -> Value:
    last = (x.spec.ndim - 1,)
    shifted, top = _expanded_parts(x, last)
    logarithm = _expanded_log_total(shifted, last, 0)  # first, so that one kernel reads the rows
    chosen = gather(x, index, **_gather_params(x.spec, mode))
    wide = ew.in_dtype(chosen, shifted.spec.dtype)
    less = ew.sub(wide, expand(top, wide.spec, last))
    return ew.in_dtype(ew.sub(less, expand(logarithm, wide.spec, last)), x.spec.dtype)


for _command, _rule in (
    (softmax, _expand_softmax),
    (log_softmax, _expand_log_softmax),
    (logsumexp, _expand_logsumexp),
    (pick_log_softmax, _expand_pick),
):
    expansion.set(_command, _rule)
