"""Attention without its matrix of weights: the command and its derivatives of any order, in memory linear in the number of tokens.

    s[t, j] = scale · q[t] · k[j] + bias[t, j]    w = softmax over allowed j of s    out[t] = sum over j of w[t, j] · v[j]

for each head. The second output holds log(sum over allowed j of exp(s[t, j])) of each row, -inf where nothing is allowed. From
it, the other commands compute the weights again, some rows at a time (Rabe and Staats, 2021; Dao et al., "FlashAttention",
2022).

q, out: (…, T, heads, features); k, v: (…, S, heads or a divisor of it, features); neighbouring heads of q share one of these
heads. A bias and masks have as many axes as the scores (…, heads, T, S), each of their size or 1. A mask of int32 has two numbers
on its last axis: the first key that a query may attend to, and the one behind the last; kernels visit no other block of keys.
`reach`: how far an allowed key may stand before its query and behind it, None for any distance. 16-bit floats are computed in
float32. A key that is not finite spoils the queries that may attend to it; a value that is not, perhaps others, too (nnc.nn sees
to them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.attention_blocks import QUERIES, Part, by_queries
from nnc.commands.attention_formulas import (
    Moving,
    Reach,
    Weights,
    gradient_formula,
    gradient_of_scores,
    narrow,
    output_formula,
    sum_to,
    tangent_formula,
)
from nnc.commands.reduce import reduce_and
from nnc.commands.rules import check_dtype, lead, lead_all
from nnc.commands.shape import reshape, transpose
from nnc.errors import ShapeError, user_error
from nnc.graph import Command, TensorSpec, check_same_dtype, register
from nnc.graph import command as get_command
from nnc.graph.rules import BatchRule, Derivative, Linear, Rules, Tangents, Value

NDArray = np.ndarray[Any, Any]
_ROWS = 64  # queries that the references take together
# bytes of scores where other commands compute attention: small beside the memory of devices that need this
_SCORES = 128 << 20
BIAS = 3  # the number of this operand in `wrt`


class Operands(NamedTuple):
    """The operands of attention by name, whether they are specs, arrays or values."""

    q: Any
    k: Any
    v: Any
    bias: Any
    masks: tuple[Any, ...]

    @classmethod
    def of(cls, operands: Sequence[Any], biased: bool) -> Operands:
        """From the list that the command takes."""
        q, k, v, *rest = operands
        return cls(q, k, v, rest[0] if biased else None, tuple(rest[1:] if biased else rest))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores."""
        *batch, count, heads, _ = self.q.shape
        return (*batch, heads, count, self.k.shape[-3])

    @property
    def is_bias_full(self) -> bool:
        """Whether the bias tells all queries and all keys apart."""
        return self.bias is not None and self.bias.shape[-2:] == self.shape[-2:]


# -- specs -------------------------------------------------------------------------------------------------------------


def _infer(*specs: TensorSpec, scale: float, reach: Reach, biased: bool) -> tuple[TensorSpec, TensorSpec]:
    x = Operands.of(specs, biased)
    check_same_dtype("attention", [s for s in (x.q, x.k, x.v, x.bias) if s is not None])
    check_dtype("attention", x.q, *ew.FLOAT, "q")
    of_q, of_k, of_v = x.q.shape, x.k.shape, x.v.shape
    fits = len(of_q) == len(of_k) >= 3 and of_k[:-1] == of_v[:-1] and of_q[-1] == of_k[-1] and of_q[:-3] == of_k[:-3]
    if not fits or of_q[-2] % max(1, of_k[-2]) or (of_q[-2] and not of_k[-2]):
        problem = "q, k and v do not fit together."
        fix = "pass q (…, T, heads, features), k and v (…, S, heads or a divisor of it, features)."
        raise user_error(ShapeError, "attention", problem, operands={"q": x.q, "k": x.k, "v": x.v}, fix=fix)
    for mask in x.masks:
        check_dtype("attention", mask, _is_mask, "bools, or int32", "mask")
    for name, extra in [("bias", x.bias)] * biased + [("mask", mask) for mask in x.masks]:
        columns = (2,) if extra.dtype == dtypes.int32 else (1, x.shape[-1])
        fits = extra.ndim == len(x.shape) and extra.shape[-1] in columns
        if not fits or any(n not in (1, m) for n, m in zip(extra.shape[:-1], x.shape[:-1], strict=True)):
            problem = f"{name} has shape {extra.shape}, which does not broadcast to the scores' {x.shape}."
            fix = f"pass a {name} with as many axes as the scores, each of their size or 1."
            raise user_error(ShapeError, "attention", problem, operands={name: extra}, fix=fix)
    return _outputs(x)


def _is_mask(dtype: dtypes.DType) -> bool:
    return dtypes.is_bool(dtype) or dtype == dtypes.int32


def _outputs(x: Operands) -> tuple[TensorSpec, TensorSpec]:
    out = x.q.update(shape=(*x.q.shape[:-1], x.v.shape[-1]))
    return out, x.q.update(shape=x.shape[:-1], dtype=dtypes.accumulator(x.q.dtype))


def _check_results(name: str, x: Operands, given: dict[str, TensorSpec]) -> None:
    """Operands that look like attention's two outputs."""
    wanted = _outputs(x)
    for (label, spec), expected in zip(given.items(), wanted * 2, strict=False):
        if (spec.shape, spec.dtype) != (expected.shape, expected.dtype):
            fix = "pass the results of attention."
            raise user_error(ShapeError, name, f"{label} must be {expected}.", operands={label: spec}, fix=fix)


def _tangent_infer(*specs: TensorSpec, wrt: tuple[int, ...], biased: bool, **params: Any) -> tuple[TensorSpec, ...]:
    tangents, rest = specs[: len(wrt)], specs[len(wrt) :]
    x = Operands.of(rest[:-2], biased)
    _infer(*rest[:-2], biased=biased, **params)
    _check_results("attention_tangent", x, {"out": rest[-2], "logarithms": rest[-1]})
    for i, t in zip(wrt, tangents, strict=True):
        if (t.shape, t.dtype) != (rest[i].shape, rest[i].dtype):
            problem = f"the tangent of operand {i} must be {rest[i]}."
            fix = "pass tangents that look like their primals."
            raise user_error(ShapeError, "attention_tangent", problem, operands={"tangent": t}, fix=fix)
    return _outputs(x)


def _gradient_infer(*specs: TensorSpec, wrt: tuple[int, ...], biased: bool, **params: Any) -> tuple[TensorSpec, ...]:
    ct, ct_sum, *rest = specs
    _infer(*rest[:-2], biased=biased, **params)
    results = {"ct": ct, "ct of the logarithms": ct_sum, "out": rest[-2], "logarithms": rest[-1]}
    _check_results("attention_gradient", Operands.of(rest[:-2], biased), results)
    return tuple(rest[i] for i in wrt)


# -- references --------------------------------------------------------------------------------------------------------


class _Blocks:
    """Attention on arrays, some queries at a time; heads stand before tokens."""

    def __init__(self, operands: Operands, scale: float, reach: Reach) -> None:
        self.q, self.k, self.v = (_heads_first(x) for x in operands[:3])
        self.operands, self.scale, self.reach = operands, scale, reach
        self.heads = self.k.shape[-3]

    def rows(self) -> Iterator[slice]:
        """The blocks of queries."""
        count = self.q.shape[-2]
        return (slice(first, min(first + _ROWS, count)) for first in range(0, count, _ROWS))

    def scores(self, rows: slice) -> NDArray:
        """(…, heads, queries of the block, S); -inf where nothing is attended to."""
        scores = self.by_group(self.q[..., rows, :] * self.q.dtype.type(self.scale), self.k.swapaxes(-1, -2))
        if self.operands.bias is not None:
            scores = scores + _cut(self.operands.bias, rows).astype(scores.dtype, copy=False)
        return np.where(self.allowed(rows), scores, scores.dtype.type(-np.inf))

    def allowed(self, rows: slice) -> NDArray:
        """Returns the mask of the block: True where a query attends to a key."""
        key = _count(self.k, self.k.shape[-2])
        query = (_count(self.k, rows.stop - rows.start) + rows.start)[:, None]
        before, after = self.reach
        found = np.ones_like(key, bool, shape=(query.size, key.size))
        if before is not None:
            found = found & (query - key <= before)
        if after is not None:
            found = found & (key - query <= after)
        for mask in self.operands.masks:
            part = _cut(mask, rows)
            if part.dtype != bool:
                part = (key >= part[..., :1]) & (key < part[..., 1:])
            found = found & part
        return found

    def weights(self, rows: slice, logarithms: NDArray) -> NDArray:
        """Made anew."""
        logarithm, scores = logarithms[..., rows, None], self.scores(rows)
        zero = scores.dtype.type(0)
        found: NDArray = np.exp(scores - np.where(logarithm == -np.inf, zero, logarithm))
        return np.where(scores == -np.inf, zero, found)  # also where the logarithm is NaN

    def by_group(self, x: NDArray, y: NDArray) -> NDArray:
        """x @ y, where neighbouring heads of x share one of y."""
        *batch, heads, rows, n = x.shape
        own = y.shape[-3]
        grouped = x.reshape(*batch, own, heads // max(1, own) * rows, n)
        found: NDArray = (grouped @ y).reshape(*batch, heads, rows, y.shape[-1])
        return found

    def group_sum(self, x: NDArray) -> NDArray:
        """Returns the sum of the contributions of the heads of q to the head of k that they share; heads are behind tokens
        again.
        """
        *batch, heads, tokens, n = x.shape
        shape = (*batch, self.heads, heads // max(1, self.heads), tokens, n)
        total: NDArray = x.reshape(shape).sum(-3)
        return total.swapaxes(-2, -3)


def _count(like: NDArray, n: int) -> NDArray:
    """Returns the numbers from 0 to n - 1, as an array beside another one."""
    return np.cumsum(np.ones_like(like, np.int64, shape=(n,))) - 1


def _heads_first(x: NDArray) -> NDArray:
    return x.astype(dtypes.accumulator(x.dtype), copy=False).swapaxes(-2, -3)


def _cut(x: NDArray, rows: slice) -> NDArray:
    return x if x.shape[-2] == 1 else x[..., rows, :]


def _reference(*operands: NDArray, scale: float, reach: Reach, biased: bool) -> tuple[NDArray, NDArray]:
    x = Operands.of(operands, biased)
    with np.errstate(all="ignore"):
        blocks = _Blocks(x, scale, reach)
        out = np.empty_like(x.q, order="C", shape=(*x.q.shape[:-1], x.v.shape[-1]))
        logarithms = np.empty_like(blocks.q, order="C", shape=x.shape[:-1])
        for rows in blocks.rows():
            scores = blocks.scores(rows)
            nothing = np.zeros_like(scores, shape=(*scores.shape[:-1], 1))
            top = scores.max(-1, keepdims=True) if scores.shape[-1] else nothing
            top = np.where(top == -np.inf, nothing, top)
            weights = np.exp(scores - top)
            total = weights.sum(-1, keepdims=True)
            mean = blocks.by_group(weights, blocks.v) / np.where(total == 0, total.dtype.type(1), total)
            out[..., rows, :, :] = mean.swapaxes(-2, -3)
            logarithms[..., rows] = (top + np.log(total))[..., 0]
        return out, logarithms


def _tangent_reference(
    *operands: NDArray, wrt: tuple[int, ...], scale: float, reach: Reach, biased: bool
) -> tuple[NDArray, NDArray]:
    tangents = dict(zip(wrt, operands[: len(wrt)], strict=True))
    *rest, out, logarithms = operands[len(wrt) :]
    x = Operands.of(rest, biased)
    moved = {i: _heads_first(t) for i, t in tangents.items() if i < BIAS}
    with np.errstate(all="ignore"):
        blocks, done = _Blocks(x, scale, reach), _heads_first(out)
        found, sums = np.zeros_like(out), np.zeros_like(logarithms)
        for rows in blocks.rows():
            weights = blocks.weights(rows, logarithms)
            scores: Any = 0
            if 0 in moved:
                scores = scores + blocks.by_group(moved[0][..., rows, :], blocks.k.swapaxes(-1, -2)) * scale
            if 1 in moved:
                scores = scores + blocks.by_group(blocks.q[..., rows, :], moved[1].swapaxes(-1, -2)) * scale
            if BIAS in tangents:
                scores = scores + _cut(tangents[BIAS], rows)
            change = (weights * scores).astype(weights.dtype, copy=False)
            total = change.sum(-1)
            mean = blocks.by_group(change, blocks.v) - total[..., None] * done[..., rows, :]
            if 2 in moved:
                mean = mean + blocks.by_group(weights, moved[2])
            found[..., rows, :, :] = mean.swapaxes(-2, -3)
            sums[..., rows] = total
        return found, sums


def _gradient_reference(
    *operands: NDArray, wrt: tuple[int, ...], scale: float, reach: Reach, biased: bool
) -> tuple[NDArray, ...]:
    ct, ct_sum, *rest, out, logarithms = operands
    x = Operands.of(rest, biased)
    with np.errstate(all="ignore"):
        blocks, ct, out = _Blocks(x, scale, reach), _heads_first(ct), _heads_first(out)
        kept = (*blocks.q.shape[:-2], x.shape[-1])
        shapes = [blocks.q.shape, *((*kept, y.shape[-1]) for y in (x.k, x.v))]
        found = [np.zeros_like(ct, order="C", shape=shape) for shape in shapes]
        of_bias = None if x.bias is None else np.zeros_like(ct, order="C", shape=x.bias.shape)
        for rows in blocks.rows():
            weights, of_out = blocks.weights(rows, logarithms), ct[..., rows, :]
            of_weights = blocks.by_group(of_out, blocks.v.swapaxes(-1, -2))
            row = (of_out * out[..., rows, :]).sum(-1) - ct_sum[..., rows]
            of_scores = np.where(weights == 0, weights, weights * (of_weights - row[..., None]))
            if of_bias is not None:
                part = _cut(of_bias, rows)
                axes = tuple(i for i, (n, m) in enumerate(zip(part.shape, of_scores.shape, strict=True)) if n != m)
                part += of_scores.sum(axes, keepdims=True)
            of_scores = of_scores * of_scores.dtype.type(scale)
            found[0][..., rows, :] = blocks.by_group(of_scores, blocks.k)
            found[1] += of_scores.swapaxes(-1, -2) @ blocks.q[..., rows, :]
            found[2] += weights.swapaxes(-1, -2) @ of_out
        results = [found[0].swapaxes(-2, -3), blocks.group_sum(found[1]), blocks.group_sum(found[2])]
        results += [] if of_bias is None else [of_bias]
        return tuple(results[i].astype(rest[i].dtype, copy=False) for i in wrt)


# -- derivatives -------------------------------------------------------------------------------------------------------


def _jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, biased: bool, **params: Any
) -> Tangents:
    wrt = tuple(i for i, t in enumerate(tangents) if t is not None and i < (BIAS + biased))
    moving = [tangents[i] for i in wrt]
    # NaN where nothing is attended to meets changes of 0
    if len(primals) > BIAS + biased or params["reach"] != (None, None):
        primals = (*map(_finite_or_0, primals[:BIAS]), *primals[BIAS:])
    return tuple(attention_tangent(*moving, *primals, *outputs, wrt=wrt, biased=biased, **params))


def _finite_or_0(x: Value) -> Value:
    """Replaces infinities and NaN by 0. The logarithms of the sums tell of the queries that attend to it."""
    return ew.select(ew.isfinite(x), x, constants.full_like(x, 0))


def _weights(
    rest: Sequence[Moving], first: Value | None = None, *, scale: float, reach: Reach, biased: bool
) -> tuple[Operands, Weights]:
    x = Operands.of(rest[:-2], biased)
    masks = [mask.value for mask in x.masks]
    return x, Weights.of([*x[:3], *rest[-2:]], masks, x.bias, first, scale=scale, reach=reach)


Pick = Callable[[Moving, dtypes.DType], Value | None]  # the value or the tangent, in a dtype


def _query_axes(rest: Sequence[Value], biased: bool) -> list[int | None]:
    """Returns the axes of queries in q, k, v, the extras, the output and the logarithms; None where there is none."""
    x = Operands.of(rest[:-2], biased)
    extras = [None if y.shape[-2] == 1 else -2 for y in ([x.bias] if biased else []) + [*x.masks]]
    return [-3, None, None, *extras, -3, -1]


def _tangent_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, wrt: tuple[int, ...], biased: bool,
    **params: Any,
) -> Tangents:  # fmt: skip
    kinds = [x.spec.dtype for x in outputs]
    formula = partial(_tangent_parts, pick=narrow, kinds=kinds, wrt=wrt, biased=biased, **params)
    moving = [Moving(x, t) for x, t in zip(primals, tangents, strict=True)]
    axes = _query_axes([x.spec for x in primals[len(wrt) :]], biased)
    return tuple(by_queries(formula, moving, [*(axes[i] for i in wrt), *axes]))


def _tangent_parts(
    moving: Sequence[Moving], first: Value | None, *, pick: Pick, kinds: Sequence[dtypes.DType], wrt: tuple[int, ...],
    **params: Any,
) -> list[Part]:  # fmt: skip
    _, weights = _weights(moving[len(wrt) :], first, **params)
    found = tangent_formula(dict(zip(wrt, moving, strict=False)), weights)
    return [(pick(y, dtype), axis) for y, dtype, axis in zip(found, kinds, (-3, -1), strict=True)]


def _tangent_transpose(
    cotangents: tuple[Value, ...], operands: tuple[Value | Linear, ...], *, wrt: tuple[int, ...], **params: Any
) -> Tangents:
    wanted = tuple(i for i, x in zip(wrt, operands, strict=False) if isinstance(x, Linear))
    rest: Sequence[Any] = operands[len(wrt) :]
    found: dict[int, Value] = {}
    if len(rest) > BIAS + params["biased"] + 2:
        cotangents, rest = _spoiled_by_logarithms(cotangents, rest)
    if BIAS in wanted:
        x = Operands.of(rest[:-2], biased=True)
        if x.is_bias_full or x.bias.spec.shape[-1] == 1:
            wanted = tuple(i for i in wanted if i != BIAS)
            find = _bias_gradient if x.is_bias_full else _gradient_of_shared_bias
            found[BIAS] = find(cotangents, rest, **params)
    if wanted:
        found |= dict(zip(wanted, attention_gradient(*cotangents, *rest, wrt=wanted, **params), strict=True))
    return tuple(found.get(i) for i in wrt) + (None,) * (len(operands) - len(wrt))


def _spoiled_by_logarithms(cotangents: Sequence[Value], rest: Sequence[Value]) -> tuple[tuple[Value, ...], list[Value]]:
    """Returns finite cotangents of the output, and operands whose logarithms are NaN for queries of which they were not: so are
    the weights of the keys that these attend to, where those that a mask forbids stay 0, also times NaN.
    """
    ct, logarithm = cotangents[0], rest[-1]
    finite = ew.isfinite(ct)
    row = reduce_and(finite, axes=(finite.spec.ndim - 1,))
    row = transpose(row, permutation=(*range(row.spec.ndim - 2), row.spec.ndim - 1, row.spec.ndim - 2))
    logarithm = ew.select(row, logarithm, constants.full_like(logarithm, math.nan))
    return (ew.select(finite, ct, constants.full_like(ct, 0)), cotangents[1]), [*rest[:-1], logarithm]


def _bias_gradient(cotangents: Sequence[Value], rest: Sequence[Value], **params: Any) -> Value:
    """Computes it by ordinary commands: it is as large as the matrix of weights itself."""
    x, weights = _weights([Moving(operand, None) for operand in rest], **params)
    ct, ct_sum = (Moving(value, None) for value in cotangents)
    spec = x.bias.value.spec
    return ew.in_dtype(sum_to(gradient_of_scores(ct, ct_sum, weights).value, spec.shape), spec.dtype)


def _gradient_of_shared_bias(cotangents: Sequence[Value], rest: Sequence[Value], **params: Any) -> Value:
    """Returns the gradient of a bias that all keys share: it moves no weight, but the logarithms of queries that attend to any
    key.
    """
    bias, logarithm = rest[BIAS].spec, rest[-1]
    nothing = ew.equal(logarithm, constants.full_like(logarithm, -math.inf))
    moved = ew.select(nothing, constants.full_like(logarithm, 0), cotangents[1])
    return ew.in_dtype(sum_to(reshape(moved, shape=(*moved.spec.shape, 1)), bias.shape), bias.dtype)


def _gradient_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, wrt: tuple[int, ...], biased: bool,
    **params: Any,
) -> Tangents:  # fmt: skip
    axes = _query_axes([x.spec for x in primals[2:]], biased)
    formula = partial(_gradient_parts, pick=narrow, axes=axes, wrt=wrt, biased=biased, **params)
    moving = [Moving(x, t) for x, t in zip(primals, tangents, strict=True)]
    return tuple(by_queries(formula, moving, [-3, -1, *axes]))


def _gradient_parts(
    moving: Sequence[Moving], first: Value | None, *, pick: Pick, axes: Sequence[int | None], wrt: tuple[int, ...],
    **params: Any,
) -> list[Part]:  # fmt: skip
    ct, ct_sum, *rest = moving
    x, weights = _weights(rest, first, **params)
    bias = None if x.bias is None else x.bias.value.spec
    found = gradient_formula(ct, gradient_of_scores(ct, ct_sum, weights), weights, bias, x.k.shape[-2])
    return [(pick(found[i], rest[i].value.spec.dtype), axes[i]) for i in wrt]


# -- by other commands -------------------------------------------------------------------------------------------------


def _decomposed(*operands: Value, biased: bool, **params: Any) -> list[Value]:
    x = Operands.of([y.spec for y in operands], biased)
    dtypes_of = [spec.dtype for spec in _outputs(x)]

    def formula(moving: Sequence[Moving], first: Value | None) -> list[Part]:
        given = Operands.of(moving, biased)
        found = output_formula(given[:3], [mask.value for mask in given.masks], given.bias, first, **params)
        return list(zip(map(ew.in_dtype, found, dtypes_of), (-3, -1), strict=True))

    axes = _query_axes([y.spec for y in operands] + [None, None], biased)[:-2]
    return _by_blocks(formula, operands, axes, x)


def _value(x: Moving, dtype: dtypes.DType) -> Value:
    return ew.in_dtype(x.value, dtype)


def _tangent_decomposed(*operands: Value, wrt: tuple[int, ...], biased: bool, **params: Any) -> list[Value]:
    rest = operands[len(wrt) :]
    x = Operands.of([y.spec for y in rest[:-2]], biased)
    kinds = [y.spec.dtype for y in rest[-2:]]
    formula = partial(_tangent_parts, pick=_value, kinds=kinds, wrt=wrt, biased=biased, **params)
    axes = _query_axes([y.spec for y in rest], biased)
    return _by_blocks(formula, operands, [*(axes[i] for i in wrt), *axes], x)


def _gradient_decomposed(*operands: Value, wrt: tuple[int, ...], biased: bool, **params: Any) -> list[Value]:
    rest = operands[2:]
    x = Operands.of([y.spec for y in rest[:-2]], biased)
    axes = _query_axes([y.spec for y in rest], biased)
    formula = partial(_gradient_parts, pick=_value, axes=axes, wrt=wrt, biased=biased, **params)
    return _by_blocks(formula, operands, [-3, -1, *axes], x)


def _by_blocks(
    formula: Callable[[Sequence[Moving], Value | None], list[Part]], operands: Sequence[Value], axes: Sequence[int | None],
    x: Operands,
) -> list[Value]:  # fmt: skip
    """Returns the results of a formula, for so many queries at a time that their scores take no more memory than `_SCORES`
    bytes.
    """
    of_one_query = math.prod(x.shape) // x.shape[-2] * dtypes.accumulator(x.q.dtype).itemsize
    moving = [Moving(value, None) for value in operands]
    return [y for y in by_queries(formula, moving, axes, max(QUERIES, _SCORES // of_one_query)) if y is not None]


# -- batches -----------------------------------------------------------------------------------------------------------


def _lead_all(size: int, rest: Sequence[Value], batched: Sequence[bool], biased: bool, own_bias: bool) -> list[Value]:
    """q, k, v and the extras with a leading axis; a bias or mask that is shared gets one of size 1, but for an `own_bias`."""
    found = []
    for i, (x, is_batched) in enumerate(zip(rest, batched, strict=True)):
        shares = i > BIAS or (i == BIAS and not (biased and own_bias))
        found.append(reshape(x, shape=(1, *x.spec.shape)) if shares and not is_batched else lead(size, x, is_batched))
    return found


def _batch(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, biased: bool, **params: Any) -> Any:
    moved = _lead_all(size, operands, batched, biased, own_bias=False)
    return attention(*moved, biased=biased, **params), (True, True)


def _batch_around(name: str, first: Callable[[tuple[int, ...]], int]) -> BatchRule:
    """Returns the rule of a command with `first(wrt)` operands before attention's, and attention's two results behind them."""

    def rule(
        size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, wrt: tuple[int, ...], biased: bool,
        **params: Any,
    ) -> Any:  # fmt: skip
        begin, end = first(wrt), len(operands) - 2
        moved = lead_all(size, operands, batched)
        moved[begin:end] = _lead_all(size, operands[begin:end], batched[begin:end], biased, own_bias=BIAS in wrt)
        found = get_command(name)(*moved, wrt=wrt, biased=biased, **params)
        return found, (True,) * len(found)

    return rule


def _cost(*specs: TensorSpec, biased: bool, **params: Any) -> int:
    x = Operands.of(specs, biased)
    return int(math.prod(x.shape)) * int(2 * x.q.shape[-1] + 2 * x.v.shape[-1] + 4)


def _cost_between(specs: Sequence[TensorSpec], biased: bool) -> int:
    """Two and a half times the products of attention."""
    x = Operands.of(specs, biased)
    return 5 * int(math.prod(x.shape)) * int(x.q.shape[-1] + x.v.shape[-1])


attention: Command = register(
    "attention",
    Rules(infer=_infer, any_arrays=True, reference=_reference, derivative=Derivative(_jvp), batch=_batch, cost=_cost),
    arity=None,
    outputs=2,
    decomposition=_decomposed,
)

# The tangents of attention's outputs, from tangents of the operands whose numbers `wrt` holds: (*tangents, *operands, *outputs).
attention_tangent: Command = register(
    "attention_tangent",
    Rules(
        infer=_tangent_infer,
        any_arrays=True,
        reference=_tangent_reference,
        derivative=Derivative(_tangent_jvp, _tangent_transpose),
        batch=_batch_around("attention_tangent", len),
        cost=lambda *specs, wrt, biased, **params: _cost_between(specs[len(wrt) : -2], biased),
    ),
    arity=None,
    outputs=2,
    decomposition=_tangent_decomposed,
)

# Its transpose, from the cotangents of attention's two outputs: (ct, ct_sum, *operands, *outputs).
attention_gradient: Command = register(
    "attention_gradient",
    Rules(
        infer=_gradient_infer,
        any_arrays=True,
        reference=_gradient_reference,
        derivative=Derivative(_gradient_jvp),
        batch=_batch_around("attention_gradient", lambda wrt: 2),
        cost=lambda *specs, wrt, biased, **params: _cost_between(specs[2:-2], biased),
    ),
    arity=None,
    outputs=None,
    decomposition=_gradient_decomposed,
)
