"""Attention, its tangent and its gradient as formulas of ordinary commands. The last two are differentiated in forward mode: so
come attention's higher derivatives.

A `Moving` is a value with its tangent. The formulas make the matrix of weights for as many queries as they are given: some at a
time (attention_blocks.py). They call commands alone, so that they run on symbols, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.contract import matrix_product
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.commands.rules import add_tangents
from nnc.commands.shape import broadcast_to, reshape, slice_axis, transpose
from nnc.graph.rules import Value

Reach = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Moving:
    """A value and its tangent, None where that is 0."""

    value: Value
    tangent: Value | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both."""
        shape: tuple[int, ...] = self.value.spec.shape
        return shape

    def linear(self, function: Callable[[Value], Value]) -> Moving:
        """Returns a linear function of it."""
        return Moving(function(self.value), None if self.tangent is None else function(self.tangent))

    def times(self, number: float) -> Moving:
        """Multiplied by a number."""
        return self.linear(lambda x: ew.mul(x, constants.full_like(x, number)))

    def __add__(self, y: Moving) -> Moving:
        return Moving(ew.add(self.value, y.value), add_tangents(self.tangent, y.tangent))

    def __sub__(self, y: Moving) -> Moving:
        return self + y.linear(ew.neg)

    def __mul__(self, y: Moving) -> Moving:
        return self._product(y, ew.safe_mul)  # weights of 0 stay 0 beside NaN

    def __matmul__(self, y: Moving) -> Moving:
        return self._product(y, matrix_product)

    def _product(self, y: Moving, product: Callable[[Value, Value], Value]) -> Moving:
        left = None if self.tangent is None else product(self.tangent, y.value)
        right = None if y.tangent is None else product(self.value, y.tangent)
        return Moving(product(self.value, y.value), add_tangents(left, right))

    @property
    def turned(self) -> Moving:
        """With the last two axes exchanged."""
        return self.linear(lambda x: _swap(x, -1, -2))

    def spread(self, shape: tuple[int, ...]) -> Moving:
        """Broadcast."""
        return self.linear(lambda x: broadcast_to(x, shape=shape))


def _swap(x: Value, i: int, j: int) -> Value:
    order = list(range(x.spec.ndim))
    order[i], order[j] = order[j], order[i]
    return transpose(x, permutation=tuple(order))


@dataclass(frozen=True)
class Weights:
    """The operands of both formulas: heads stand before tokens, all in the dtype of sums, keys and values repeated for each query's
    head.

    `allowed` is None where every query attends to every key; `exp_scores` are the weights.
    """

    q: Moving
    k: Moving
    v: Moving
    out: Moving
    weights: Moving
    scale: float

    @classmethod
    def of(
        cls, operands: Sequence[Moving], masks: Sequence[Value], bias: Moving | None, first: Value | None, *, scale: float,
        reach: Reach,
    ) -> Weights:  # fmt: skip
        """From q, k, v, out and the logarithms of the sums, as the commands have them; `first` is the number of the first query."""
        heads = operands[0].shape[-2]
        q, k, v, out = (forward(x, heads) for x in operands[:4])
        scores = _scores(q, k, bias, scale)
        logarithm = wide(operands[4]).linear(_as_column)
        safe = Moving(_without_infinity(logarithm.value), logarithm.tangent)
        shifted = scores - safe.spread(scores.shape)
        weights = ew.exp(shifted.value)
        for allowed in _allowed(scores.shape, masks, reach, first):
            weights = ew.select(allowed, weights, constants.full_like(weights, 0))
        tangent = None if shifted.tangent is None else ew.safe_mul(shifted.tangent, weights)
        return cls(q, k, v, out, Moving(weights, tangent), scale)


def output_formula(
    operands: Sequence[Moving], masks: Sequence[Value], bias: Moving | None, first: Value | None, *, scale: float,
    reach: Reach,
) -> tuple[Value, Value]:  # fmt: skip
    """Computes attention's output and the logarithms of the sums, in the dtype of sums.

    Args:
        operands: q, k and v, without tangents.
        masks: see the command.
        bias: added to the scores.
        first: the number of the first query.
        scale: the factor of the scores.
        reach: see the command.
    """
    q, k, v = (forward(x, operands[0].shape[-2]) for x in operands)
    scores = _scores(q, k, bias, scale).value
    for allowed in _allowed(scores.spec.shape, masks, reach, first):
        scores = ew.select(allowed, scores, constants.full_like(scores, -math.inf))
    top = _without_infinity(_as_column(reduce_max(scores, axes=(scores.spec.ndim - 1,))))
    weights = ew.exp(ew.sub(scores, broadcast_to(top, shape=scores.spec.shape)))
    total = _as_column(_sum_rows(weights))
    mean = matrix_product(weights, v.value)
    nothing = ew.equal(total, constants.full_like(total, 0))
    divisor = ew.select(nothing, constants.full_like(total, 1), total)
    out = ew.div(mean, broadcast_to(divisor, shape=mean.spec.shape))
    logarithms = reshape(ew.add(top, ew.log(total)), shape=total.spec.shape[:-1])
    return _swap(out, -2, -3), logarithms


def _scores(q: Moving, k: Moving, bias: Moving | None, scale: float) -> Moving:
    scores = (q @ k.turned).times(scale)
    return scores if bias is None else scores + wide(bias).spread(scores.shape)


def _without_infinity(x: Value) -> Value:
    """Replaces -inf, from rows in which nothing is allowed, by 0."""
    return ew.select(ew.equal(x, constants.full_like(x, -math.inf)), constants.full_like(x, 0), x)


def _allowed(shape: tuple[int, ...], masks: Sequence[Value], reach: Reach, first: Value | None) -> list[Value]:
    """Returns the masks, bools of the scores' shape."""
    return [*(_spread(mask, shape) for mask in masks), *_near(shape, reach, first)]


def _spread(mask: Value, shape: tuple[int, ...]) -> Value:
    """Returns a mask, which may be ranges of keys, as bools of the scores' shape."""
    if dtypes.is_bool(mask.spec.dtype):
        return broadcast_to(mask, shape=shape)
    key = constants.iota(shape=shape, dtype=mask.spec.dtype, axis=len(shape) - 1)
    begin, end = (broadcast_to(slice_axis(mask, mask.spec.ndim - 1, i, i + 1), shape=shape) for i in (0, 1))
    return ew.bitwise_and(ew.less_equal(begin, key), ew.less(key, end))


def _near(shape: tuple[int, ...], reach: Reach, first: Value | None) -> list[Value]:
    """Returns the mask of keys within reach of a query, bools of the scores' shape."""
    query, key = (_iota(shape, axis) for axis in (len(shape) - 2, len(shape) - 1))
    query = query if first is None else ew.add(query, broadcast_to(first, shape=shape, axes=()))
    before, after = reach
    found = []
    if before is not None:
        found.append(ew.less_equal(ew.sub(query, key), constants.full_like(key, before)))
    if after is not None:
        found.append(ew.less_equal(ew.sub(key, query), constants.full_like(key, after)))
    return found


def _iota(shape: tuple[int, ...], axis: int) -> Value:
    return constants.iota(shape=shape, dtype=dtypes.int64, axis=axis)


def wide(x: Moving) -> Moving:
    """In the dtype of sums."""
    dtype = dtypes.accumulator(x.value.spec.dtype)
    return x.linear(lambda y: ew.in_dtype(y, dtype))


def narrow(x: Moving | None, dtype: dtypes.DType) -> Value | None:
    """Returns the tangent in a dtype."""
    if x is None or x.tangent is None or x.tangent.spec.dtype == dtype:
        return None if x is None else x.tangent
    return ew.convert(x.tangent, dtype=dtype)


def forward(x: Moving, heads: int) -> Moving:
    """(…, tokens, heads, features) as (…, heads, tokens, features), with as many heads as the queries have."""
    shared = heads // max(1, x.shape[-2])

    def move(y: Value) -> Value:
        y = _swap(y, -2, -3)
        if shared <= 1:
            return y
        *batch, own, tokens, features = y.spec.shape
        y = broadcast_to(
            reshape(y, shape=(*batch, own, 1, tokens, features)), shape=(*batch, own, shared, tokens, features)
        )
        return reshape(y, shape=(*batch, heads, tokens, features))

    return wide(x).linear(move)


def back(x: Moving, heads: int) -> Moving:
    """Returns the transpose of `forward`, but for the dtype."""

    def move(y: Value) -> Value:
        *batch, all_heads, tokens, features = y.spec.shape
        if heads and all_heads != heads:
            shape = (*batch, heads, all_heads // heads, tokens, features)
            y = reduce_sum(reshape(y, shape=shape), axes=(len(batch) + 1,))
        return _swap(y, -2, -3)

    return x.linear(move)


def tangent_formula(tangents: dict[int, Moving], w: Weights) -> tuple[Moving, Moving]:
    """Returns the tangents of the output and of the logarithms of the sums; `tangents` by number of the operand (3: of the
    bias).
    """
    heads = w.q.shape[-3]
    scores: list[Moving] = []
    moved = {i: forward(t, heads) for i, t in tangents.items() if i < 3}
    if 0 in moved:
        scores.append((moved[0] @ w.k.turned).times(w.scale))
    if 1 in moved:
        scores.append((w.q @ moved[1].turned).times(w.scale))
    if 3 in tangents:
        scores.append(wide(tangents[3]).spread(w.weights.shape))
    parts = [w.weights @ moved[2]] if 2 in moved else []
    if scores:
        change = w.weights * sum_of(scores)
        total = change.linear(_sum_rows)
        parts += [change @ w.v, (total.linear(_as_column).spread(w.out.shape) * w.out).linear(ew.neg)]
    else:
        total = Moving(constants.full_like(_sum_rows(w.weights.value), 0), None)
    return back(sum_of(parts), heads), total


def gradient_of_scores(ct: Moving, ct_sum: Moving, w: Weights) -> Moving:
    """Returns the cotangent of the scores, from the cotangents of the output and of the logarithms of the sums."""
    ct = forward(ct, w.q.shape[-3])
    of_weights = ct @ w.v.turned
    row = (ct * w.out).linear(_sum_rows) - wide(ct_sum)
    return w.weights * (of_weights - row.linear(_as_column).spread(of_weights.shape))


def gradient_formula(ct: Moving, of_scores: Moving, w: Weights, bias: Any, own_heads: int) -> dict[int, Moving]:
    """Returns the cotangents of q, k, v and, where it has a spec, the bias, by number."""
    heads = w.q.shape[-3]
    scaled = of_scores.times(w.scale)
    found = {
        0: back(scaled @ w.k, heads),
        1: back(scaled.turned @ w.q, own_heads),
        2: back(w.weights.turned @ forward(ct, heads), own_heads),
    }
    if bias is not None:
        found[3] = of_scores.linear(lambda x: sum_to(x, bias.shape))
    return found


def _as_column(x: Value) -> Value:
    return reshape(x, shape=(*x.spec.shape, 1))


def _sum_rows(x: Value) -> Value:
    return reduce_sum(x, axes=(x.spec.ndim - 1,))


def sum_to(x: Value, shape: tuple[int, ...]) -> Value:
    """Sums over the axes in which `shape` has size 1."""
    axes = tuple(i for i, (n, m) in enumerate(zip(x.spec.shape, shape, strict=True)) if n != m)
    return reshape(reduce_sum(x, axes=axes), shape=shape) if axes else x


def sum_of(terms: Sequence[Moving]) -> Moving:
    """Returns the sum of at least one."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
