"""Recognises what softmax, log-softmax, logsumexp, cross entropy and their gradients are traced to; makes one command of each.

The rules hold up to rounding (combined commands round less often, and a gradient is the same sum in another order) and up to the
sign of zero. All passes but this one and `join_sums` are exact.
"""

# ruff: noqa: D103  (a rule is an equation, which says more than words)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.commands import constants, normalize
from nnc.commands import elementwise as ew
from nnc.commands import reduce as rd
from nnc.commands.index import gather, scatter
from nnc.commands.rules import Value
from nnc.commands.shape import broadcast_to, reshape
from nnc.graph import Command, Graph, Rule, Sample, TensorSpec, apply_rules, register_pass, rewrite_rule, sample
from nnc.lower.passes.algebra import number, spec
from nnc.options import Options

Axes = tuple[int, ...]


@register_pass("combine")
def combine(graph: Graph, options: Options) -> Graph:
    """Replaces the many commands of a softmax and its relatives by one, in sub-graphs, too.

    Requires: `fold`, `simplify` and `cse` have run; dead code elimination must follow.
    Ensures:  what `nnc.nn.softmax`, `log_softmax`, `softmax_cross_entropy` and `nnc.numpy` functions of that kind yield is a
              command of nnc/commands/normalize.py; the log-probabilities of which only chosen ones are read are not made, nor
              is the one-hot form of labels. Values differ by rounding, and in the sign of zero.
    Example:  m = reduce_max(x); … e = exp(x - m); … y = div(e, sum)  →  y = softmax(x)
    """
    return apply_rules(graph, RULES)


# -- what users' functions are traced to -------------------------------------------------------------------------------


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
        """The largest element, or 0 where that is infinite."""
        return ew.select(ew.equal(ew.abs_(top), number(top, math.inf)), number(top, 0), top)

    def back(self, x: Value) -> Value:
        """A gradient of the sum, spread over the elements that were summed; 0 where the sum was replaced."""
        zero_or = ew.select(self.nothing, number(x, 0), x)
        return rd.expand(reshape(zero_or, shape=_removed(self.x, self.axes)), self.x.spec, self.axes)


class _ShiftedFinite(_Shifted):
    """The form of `nnp.special.logsumexp`, which also takes NaN for infinite."""

    def finite(self, top: Value) -> Value:
        return ew.select(ew.isfinite(top), top, number(top, 0))


def _removed(x: TensorSpec, axes: Axes) -> Axes:
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


MATRIX, CUBE = spec((2, 3), "float32"), spec((2, 3, 4), "float64")


def _samples(*variables: Any) -> list[Sample]:
    """Samples for x and further variables; "like": of its spec, "row": of the spec of its sums, axes kept."""

    def specs(x: TensorSpec, axes: Axes) -> list[TensorSpec]:
        return [x, *(x if kind == "like" else x.update(shape=_kept(x, axes)) for kind in variables)]

    cases = ((MATRIX, (1,)), (MATRIX, (0,)), (CUBE, (1,)), (CUBE, (0, 2)))
    return [sample(*specs(x, axes), axes=axes) for x, axes in cases]


@rewrite_rule(exact=False, samples=_samples())
def softmax(x: Value, *, axes: Axes) -> Any:
    parts = _Shifted(x, axes)
    return ew.div(parts.exponentials, _spread(parts.safe, x)), normalize.softmax(x, axes=axes)


@rewrite_rule(exact=False, samples=_samples())
def log_softmax(x: Value, *, axes: Axes) -> Any:
    parts = _Shifted(x, axes)
    return ew.sub(parts.shifted, _spread(ew.log(parts.safe), x)), normalize.log_softmax(x, axes=axes)


@rewrite_rule(exact=False, samples=_samples())
def logsumexp(x: Value, *, axes: Axes) -> Any:
    parts = _ShiftedFinite(x, axes)
    logarithm = ew.add(ew.log(parts.safe), parts.top)
    left = ew.select(parts.nothing, number(logarithm, -math.inf), logarithm)
    return left, reshape(normalize.logsumexp(x, axes=axes), shape=left.shape)


@rewrite_rule(
    exact=False,
    samples=[sample(spec((2, 1, 3), "float32"), axes=(1,))],
    when=lambda x, axes: all(x.shape[axis] == 1 for axis in axes),
)
def sum_of_one_element(x: Value, *, axes: Axes) -> Any:
    """The sum of a single -0.0 is 0.0."""
    out = rd.reduce_sum(x, axes=axes)
    return out, reshape(x, shape=out.shape)


@rewrite_rule(exact=False, samples=[sample(MATRIX, axes=(1,)), sample(CUBE, axes=(0, 2))])
def sum_of_negation(x: Value, *, axes: Axes) -> Any:
    """The negation then has the sum's size. A sum of 0.0 becomes -0.0."""
    return rd.reduce_sum(ew.neg(x), axes=axes), ew.neg(rd.reduce_sum(x, axes=axes))


# -- their gradients ---------------------------------------------------------------------------------------------------


def _softmax_gradient(product: Command) -> Rule:
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
    return rewrite_rule(exact=False, samples=_samples("like"))(rule)


def _log_sum_gradient(product: Command) -> Rule:
    """What reaches the elements through the logarithm of the sum, in log-softmax and cross entropy."""

    def rule(x: Value, ct: Value, *, axes: Axes) -> Any:
        parts = _Shifted(x, axes)
        left = product(parts.back(ew.safe_mul(ct, ew.reciprocal(parts.safe))), parts.exponentials)
        return left, product(_spread(ct, x), normalize.softmax(x, axes=axes))

    rule.__name__ = f"log_sum_gradient_by_{product.name}"
    return rewrite_rule(exact=False, samples=_samples("row"))(rule)


def _logsumexp_gradient(product: Command) -> Rule:
    """Rows without any probability get 0 twice: for the result that is replaced, and for the sum."""

    def rule(x: Value, ct: Value, *, axes: Axes) -> Any:
        parts = _ShiftedFinite(x, axes)
        of_result = ew.select(parts.nothing, number(ct, 0), ct)
        left = product(parts.back(ew.safe_mul(of_result, ew.reciprocal(parts.safe))), parts.exponentials)
        return left, product(_spread(ct, x), normalize.softmax(x, axes=axes))

    rule.__name__ = f"logsumexp_gradient_by_{product.name}"
    return rewrite_rule(exact=False, samples=_samples("row"))(rule)


# -- labels ------------------------------------------------------------------------------------------------------------

_INDEX = spec((2, 1), "int64")
_ALONG_LAST: dict[str, Any] = {"axes": (1,), "batch": 1, "mode": "clip"}


def _picks_last(x: TensorSpec, axes: Axes, batch: int, mode: str) -> bool:
    return axes == (x.ndim - 1,) and batch == x.ndim - 1 and mode in normalize.PICK_MODES


@rewrite_rule(
    exact=False,
    samples=[sample(MATRIX, _INDEX, summed=(1,), **_ALONG_LAST)],
    when=lambda x, index, summed, axes, batch, mode: summed == axes and _picks_last(x, axes, batch, mode),
)
def chosen_log_probability(x: Value, index: Value, *, summed: Axes, axes: Axes, batch: int, mode: str) -> Any:
    left = gather(normalize.log_softmax(x, axes=summed), index, axes=axes, batch=batch, mode=mode)
    return left, normalize.pick_log_softmax(x, index, mode=mode)


def _cross_entropy_gradient(product: Command) -> Rule:
    """One label a row: its cotangent is the row's sum, so the one-hot form need not be summed, nor made."""

    def rule(y: Value, ct: Value, index: Value, *, summed: Axes, axes: Axes, batch: int, mode: str, op: str) -> Any:
        chosen = scatter(number(y, 0), ct, index, axes=axes, batch=batch, mode=mode, op=op)
        total = reshape(ew.neg(rd.reduce_sum(chosen, axes=summed)), shape=ct.shape)
        left = ew.add(chosen, product(_spread(total, y), y))
        rest = product(_spread(ew.neg(ct), y), y)
        return left, scatter(rest, ct, index, axes=axes, batch=batch, mode=mode, op=op)

    def when(
        y: TensorSpec, ct: TensorSpec, index: TensorSpec, summed: Axes, axes: Axes, batch: int, mode: str, op: str
    ) -> bool:
        return op == "add" and summed == axes and ct.shape[-1:] == (1,) and _picks_last(y, axes, batch, mode)

    rule.__name__ = f"cross_entropy_gradient_by_{product.name}"
    case = sample(MATRIX, spec((2, 1), "float32"), _INDEX, summed=(1,), op="add", **_ALONG_LAST)
    return rewrite_rule(exact=False, samples=[case], when=when)(rule)


def _expected_log_probability(product: Command, is_first: bool) -> Rule:
    """A sum over more than the axes of the softmax is taken in two steps, the first of which goes along with the softmax."""

    def rule(x: Value, weights: Value, *, axes: Axes, summed: Axes) -> Any:
        logarithms = normalize.log_softmax(x, axes=axes)
        terms = product(weights, logarithms) if is_first else product(logarithms, weights)
        rest = tuple(i - sum(axis < i for axis in axes) for i in summed if i not in axes)
        return rd.reduce_sum(terms, axes=summed), rd.reduce_sum(rd.reduce_sum(terms, axes=axes), axes=rest)

    rule.__name__ = f"expected_log_probability_by_{product.name}_{'first' if is_first else 'second'}"
    cases = [sample(MATRIX, MATRIX, axes=(1,), summed=(0, 1)), sample(CUBE, CUBE, axes=(1,), summed=(0, 1))]
    when = lambda x, weights, axes, summed: set(axes) < set(summed)
    return rewrite_rule(exact=False, samples=cases, when=when)(rule)


# -- elements of rows --------------------------------------------------------------------------------------------------


def _count(x: TensorSpec, dtype: Any, counted: bool) -> Any:
    """0, 1, 2, … for each row, in the two forms that `fold` leaves it in."""
    n = x.shape[0]
    return constants.iota(shape=(n,), dtype=dtype, axis=0) if counted else np.arange(n, dtype=dtype)


def _of_rows(dtype: Any, counted: bool) -> tuple[Rule, Rule]:
    """x[arange(n), index] reads, and its gradient writes, an element of each row: what is known of batches holds for it, too."""

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
        rewrite_rule(exact=False, samples=[sample(MATRIX, chosen, mode="clip")], when=when)(read),
        rewrite_rule(exact=False, samples=[sample(MATRIX, row, chosen, mode="clip", op="add")], when=when)(write),
    )


def _scattered_sum(is_first: bool, is_zero: bool) -> Rule:
    """What is added to a tensor in places is added last: zeros for it need not be made, and sums before it are one kernel."""

    def rule(x: Value, y: Value, ct: Value, index: Value, *, axes: Axes, batch: int, mode: str, op: str) -> Any:
        scattered = scatter(number(y, 0) if is_zero else x, ct, index, axes=axes, batch=batch, mode=mode, op=op)
        left = ew.add(scattered, y) if is_first else ew.add(y, scattered)
        return left, scatter(y if is_zero else ew.add(x, y), ct, index, axes=axes, batch=batch, mode=mode, op=op)

    def of_zeros(y: Value, ct: Value, index: Value, *, axes: Axes, batch: int, mode: str, op: str) -> Any:
        return rule(y, y, ct, index, axes=axes, batch=batch, mode=mode, op=op)

    made = of_zeros if is_zero else rule
    made.__name__ = f"scattered_sum_{'first' if is_first else 'second'}{'_of_zeros' if is_zero else ''}"
    case = sample(*[MATRIX] * (2 - is_zero), spec((2, 1), "float32"), _INDEX, op="add", **_ALONG_LAST)
    return rewrite_rule(exact=False, samples=[case], when=lambda *specs, op, **params: op == "add")(made)


EXPECTED = tuple(
    _expected_log_probability(product, is_first) for product in (ew.mul, ew.safe_mul) for is_first in (True, False)
)
OF_ROWS = tuple(
    rule for dtype in (dtypes.int64, dtypes.int32) for counted in (True, False) for rule in _of_rows(dtype, counted)
)
GRADIENTS = tuple(
    make(product)
    for make in (_softmax_gradient, _log_sum_gradient, _logsumexp_gradient, _cross_entropy_gradient)
    for product in (
        ew.mul,
        ew.safe_mul,
    )  # which of them stands for a product with exp(x) is the derivative rules' choice
)
RULES: tuple[Rule, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Rule)),
    *OF_ROWS,
    *EXPECTED,
    *GRADIENTS,
    *(
        _scattered_sum(is_first, is_zero) for is_zero in (True, False) for is_first in (True, False)
    ),  # gradients come first
)
