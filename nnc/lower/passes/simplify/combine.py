"""Recognises the nodes that softmax, log-softmax, logsumexp and their gradients are traced to; makes one command of each.

The rules hold up to rounding (combined commands round less often, and a gradient is the same sum in another order) and up to the
sign of zero. So do `one_hot`, `sink_gathers`, `join_sums` and the passes that make few products of many; all others
are exact.
"""

# ruff: noqa: D103  (a rule is an equation, which says more than words)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands import constants, normalize
from nnc.commands import elementwise as ew
from nnc.commands import reduce as rd
from nnc.commands.contract import dot
from nnc.commands.index import gather, scatter
from nnc.commands.shape import broadcast_to, reshape
from nnc.graph import Command, Graph, RewriteRule, Sample, TensorSpec, apply_rules, rewrite_rule, sample
from nnc.graph.rules import Value
from nnc.lower.passes.simplify.algebra import number, spec

Axes = tuple[int, ...]


def combine(graph: Graph, options: Options) -> Graph:
    """Replaces the many commands of a softmax and its relatives by one, in sub-graphs, too.

    Ensures: `nnc.nn.softmax`, `log_softmax`, `softmax_cross_entropy` and `nnc.numpy` functions of that kind yield results of
        commands of nnc/commands/normalize.py. Values differ by rounding, and in the sign of zero.

    Example:
        m = reduce_max(x); … e = exp(x - m); … y = div(e, sum)  →  y = softmax(x)
    """
    return apply_rules(graph, RULES)


# -- the graphs of users' functions -------------------------------------------------------------------------------


def _kept(x: TensorSpec, axes: Axes) -> Axes:
    return tuple(1 if i in axes else n for i, n in enumerate(x.shape))


def _spread(x: Value, like: Value) -> Value:
    return broadcast_to(x, shape=like.shape)


class _Shifted:
    """The common part: x minus its largest element, the exponentials, their sum, and that made safe to divide by."""

    def __init__(self, x: Value, axes: Axes) -> None:
        self.x, self.axes = x, axes
        top = reshape(rd.reduce_max(x, axes=axes), shape=_kept(x, axes))
        self.top = self.finite(top)
        self.shifted = ew.sub(x, _spread(self.top, x))
        self.exponentials = ew.exp(self.shifted)
        self.total = reshape(rd.reduce_sum(self.exponentials, axes=axes), shape=_kept(x, axes))
        self.nothing = ew.equal(self.total, number(self.total, 0))
        self.safe = ew.select(self.nothing, number(self.total, 1), self.total)

    def finite(self, top: Value) -> Value:
        """Returns the largest element, or 0 where that is infinite."""
        return ew.select(ew.equal(ew.abs_(top), number(top, math.inf)), number(top, 0), top)

    def back(self, x: Value) -> Value:
        """Returns a gradient of the sum, spread over the elements that were summed; 0 where the sum was replaced."""
        zero_or = ew.select(self.nothing, number(x, 0), x)
        return rd.expand(reshape(zero_or, shape=_removed(self.x, self.axes)), self.x.spec, self.axes)


def _removed(x: TensorSpec, axes: Axes) -> Axes:
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


MATRIX, CUBE = spec((2, 3), "float32"), spec((2, 3, 4), "float64")


def _samples(*variables: Any) -> list[Sample]:
    """Samples for x and further variables, of one form; "like": of its spec, "row": of the spec of its sums, axes kept."""

    def specs(x: TensorSpec, axes: Axes) -> list[TensorSpec]:
        return [x, *(x if kind == "like" else x.update(shape=_kept(x, axes)) for kind in variables)]

    cases = ((MATRIX, (1,)), (MATRIX, (0,)), (CUBE, (1,)), (CUBE, (0, 2)))
    return [Sample(tuple(specs(x, axes)), {"axes": axes}, form=i == 0) for i, (x, axes) in enumerate(cases)]


@rewrite_rule(root=ew.div, exact=False, samples=_samples())
def softmax(x: Value, *, axes: Axes) -> Any:
    parts = _Shifted(x, axes)
    return ew.div(parts.exponentials, _spread(parts.safe, x)), normalize.softmax(x, axes=axes)


@rewrite_rule(root=ew.sub, exact=False, samples=_samples())
def log_softmax(x: Value, *, axes: Axes) -> Any:
    parts = _Shifted(x, axes)
    return ew.sub(parts.shifted, _spread(ew.log(parts.safe), x)), normalize.log_softmax(x, axes=axes)


@rewrite_rule(root=ew.select, exact=False, samples=_samples())
def logsumexp(x: Value, *, axes: Axes) -> Any:
    parts = _Shifted(x, axes)
    logarithm = ew.add(ew.log(parts.safe), parts.top)
    left = ew.select(parts.nothing, number(logarithm, -math.inf), logarithm)
    return left, reshape(normalize.logsumexp(x, axes=axes), shape=left.shape)


def _is_of_one_element(x: TensorSpec, axes: Axes) -> bool:
    return all(x.shape[axis] == 1 for axis in axes)


@rewrite_rule(
    root=rd.reduce_sum,
    samples=[sample(spec((2, 1, 3), "float32"), axes=(1,))],
    when=lambda x, axes: dtypes.is_inexact(x.dtype) and _is_of_one_element(x, axes),
)
def sum_of_one_number(x: Value, *, axes: Axes) -> Any:
    """Returns the sum of a single -0.0 is 0.0."""
    out = rd.reduce_sum(x, axes=axes)
    return out, ew.add(reshape(x, shape=out.shape), number(out, 0))


@rewrite_rule(
    root=rd.reduce_sum,
    samples=[sample(spec((2, 1, 3), "int32"), axes=(1,))],
    when=lambda x, axes: not dtypes.is_inexact(x.dtype) and _is_of_one_element(x, axes),
)
def sum_of_one_integer(x: Value, *, axes: Axes) -> Any:
    out = rd.reduce_sum(x, axes=axes)
    return out, reshape(x, shape=out.shape)


@rewrite_rule(root=rd.reduce_sum, exact=False, samples=[sample(MATRIX, axes=(1,)), sample(CUBE, axes=(0, 2))])
def sum_of_negation(x: Value, *, axes: Axes) -> Any:
    """Returns the subtraction then has the sum's size. A sum of 0.0 stays 0.0, which a negation would not leave."""
    total = rd.reduce_sum(x, axes=axes)
    return rd.reduce_sum(ew.neg(x), axes=axes), ew.sub(number(total, 0), total)


@rewrite_rule(
    root=rd.reduce_sum,
    exact=False,
    samples=[
        sample(MATRIX.update(shape=()), shape=(2, 3), axes=(), summed=(1,)),
        sample(MATRIX.update(shape=(2,)), shape=(2, 3), axes=(0,), summed=(1,)),
    ],
    when=lambda x, shape, axes, summed: x.dtype in (dtypes.float32, dtypes.float64) and not set(axes) & set(summed),
)
def sum_of_equal_elements(x: Value, *, shape: tuple[int, ...], axes: Axes, summed: Axes) -> Any:
    """Returns a product with their number; 0 is added, since a sum of -0.0 is 0.0."""
    out = rd.reduce_sum(broadcast_to(x, shape=shape, axes=axes), axes=summed)
    kept = tuple(axis - sum(i < axis for i in summed) for axis in axes)
    spread = broadcast_to(x, shape=out.shape, axes=kept) if out.shape else x
    times = number(out, math.prod(shape[axis] for axis in summed))
    return out, ew.add(ew.mul(spread, times), number(out, 0))


@rewrite_rule(
    root=dot,
    exact=False,
    samples=[sample(MATRIX, spec((), "float32"), contract=((), ()), batch=((), ()))],
    when=lambda x, y, **_: not y.ndim,
)
def product_with_number(x: Value, y: Value, *, contract: Any, batch: Any) -> Any:
    """Returns a sum of one product of -0.0 is 0.0."""
    return dot(x, y, contract=contract, batch=batch), ew.mul(
        x, broadcast_to(y, shape=x.shape, axes=()) if x.shape else y
    )


@rewrite_rule(
    root=dot,
    exact=False,
    samples=[sample(spec((), "float32"), MATRIX, contract=((), ()), batch=((), ()))],
    when=lambda x, y, **_: not x.ndim,
)
def product_of_number(x: Value, y: Value, *, contract: Any, batch: Any) -> Any:
    """Returns a sum of one product of -0.0 is 0.0."""
    return dot(x, y, contract=contract, batch=batch), ew.mul(
        broadcast_to(x, shape=y.shape, axes=()) if y.shape else x, y
    )


# -- their gradients ---------------------------------------------------------------------------------------------------


def _softmax_gradient(product: Command) -> RewriteRule:
    """Forward comes first in a graph, so the quotient is a softmax by now."""

    def rule(x: Value, ct: Value, *, axes: Axes) -> Any:
        parts = _Shifted(x, axes)
        y, divisor = normalize.softmax(x, axes=axes), _spread(parts.safe, x)
        of_sum = rd.reduce_sum(ew.safe_mul(ct, ew.div(ew.neg(y), divisor)), axes=axes)
        of_terms = ew.safe_mul(ct, ew.reciprocal(divisor))
        left = product(ew.add(of_terms, parts.back(reshape(of_sum, shape=parts.safe.shape))), parts.exponentials)
        inner = rd.reduce_sum(product(ct, y), axes=axes)
        return left, product(y, ew.sub(ct, rd.expand(inner, x.spec, axes)))

    rule.__name__ = f"softmax_gradient_by_{product.name}"
    return rewrite_rule(root=product, exact=False, samples=_samples("like"))(rule)


def _log_sum_gradient(product: Command) -> RewriteRule:
    """The gradient that reaches the elements through the logarithm of the sum, in log-softmax and cross entropy."""

    def rule(x: Value, ct: Value, *, axes: Axes) -> Any:
        parts = _Shifted(x, axes)
        left = product(parts.back(ew.safe_mul(ct, ew.reciprocal(parts.safe))), parts.exponentials)
        return left, product(_spread(ct, x), normalize.softmax(x, axes=axes))

    rule.__name__ = f"log_sum_gradient_by_{product.name}"
    return rewrite_rule(root=product, exact=False, samples=_samples("row"))(rule)


def _logsumexp_gradient(product: Command) -> RewriteRule:
    """Rows without any probability get 0 twice: for the result that is replaced, and for the sum."""

    def rule(x: Value, ct: Value, *, axes: Axes) -> Any:
        parts = _Shifted(x, axes)
        of_result = ew.select(parts.nothing, number(ct, 0), ct)
        left = product(parts.back(ew.safe_mul(of_result, ew.reciprocal(parts.safe))), parts.exponentials)
        return left, product(_spread(ct, x), normalize.softmax(x, axes=axes))

    rule.__name__ = f"logsumexp_gradient_by_{product.name}"
    return rewrite_rule(root=product, exact=False, samples=_samples("row"))(rule)


# -- elements of rows --------------------------------------------------------------------------------------------------


def _count(x: TensorSpec, dtype: Any, counted: bool) -> Any:
    """0, 1, 2, … for each row, in the two forms that `fold` leaves it in."""
    n = x.shape[0]
    return constants.iota(shape=(n,), dtype=dtype, axis=0) if counted else np.arange(n, dtype=dtype)


def _of_rows(dtype: Any, counted: bool) -> tuple[RewriteRule, RewriteRule]:
    """x[arange(n), index] reads, and its gradient writes, an element of each row: both become gathers and scatters with a batch
    axis.
    """

    def read(x: Value, index: Value, *, mode: str) -> Any:
        left = gather(x, _count(x, dtype, counted), index, axes=(0, 1), batch=0, mode=mode)
        column = reshape(index, shape=(*index.shape, 1))
        return left, reshape(gather(x, column, axes=(1,), batch=1, mode=mode), shape=index.shape)

    def write(x: Value, ct: Value, index: Value, *, mode: str, op: str) -> Any:
        left = scatter(x, ct, _count(x, dtype, counted), index, axes=(0, 1), batch=0, mode=mode, op=op)
        columns = (reshape(y, shape=(*index.shape, 1)) for y in (ct, index))
        return left, scatter(x, *columns, axes=(1,), batch=1, mode=mode, op=op)

    def when(x: TensorSpec, *others: TensorSpec, mode: str, op: str = "") -> bool:
        return x.ndim == 2 and others[-1].shape == x.shape[:1]

    for rule in (read, write):
        rule.__name__ = f"{rule.__name__}_by_{'count' if counted else 'numbers'}_{dtype.name}"
    row, chosen = MATRIX.update(shape=(2,)), spec((2,), "int64")
    return (
        rewrite_rule(root=gather, exact=False, samples=[sample(MATRIX, chosen, mode="clip")], when=when)(read),
        rewrite_rule(
            root=scatter, exact=False, samples=[sample(MATRIX, row, chosen, mode="clip", op="add")], when=when
        )(write),
    )


OF_ROWS = tuple(
    rule for dtype in (dtypes.int64, dtypes.int32) for counted in (True, False) for rule in _of_rows(dtype, counted)
)
GRADIENTS = tuple(
    make(product)
    for make in (
        _softmax_gradient,
        _logsumexp_gradient,
        _log_sum_gradient,
    )  # the last one matches more than the one before
    for product in (ew.mul, ew.safe_mul)  # which stands for a product with exp(x) is the derivative rules' choice
)
RULES: tuple[RewriteRule, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, RewriteRule)),
    *OF_ROWS,
    *GRADIENTS,
)
