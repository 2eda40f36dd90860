"""Training in 16-bit floats: scaling of the loss, and steps that are left out where a value overflowed.

scaling = nnc.optim.DynamicLossScale()
grads = nnc.grad(lambda p: scaling.scale(loss(p)))(params)
grads = scaling.unscale(grads)
finite = nnc.optim.all_finite(grads)
scaling = scaling.adjust(finite)
updates, next_state = optimizer.update(grads, state, params)
params, state = nnc.optim.select_tree(finite, (nnc.optim.apply_updates(params, updates), next_state), (params, state))
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_count
from nnc.errors.tracebacks import api_boundary
from nnc.optim.arguments import Scalar, check_scalar, check_state, is_trainable
from nnc.optim.base import (
    GradientTransformation,
    check_transformation,
    extended,
    map_trainable,
    number,
    run_update,
    widen,
)
from nnc.optim.transforms import zero_count
from nnc.typing import A, ArrayLike

__all__ = ["ApplyIfFiniteState", "DynamicLossScale", "StaticLossScale", "all_finite", "apply_if_finite", "select_tree"]


@spelled
def all_finite(values: Any) -> Array:
    """Whether no floating-point leaf has an inf or a nan: a 0-d bool.

    Args:
        values: a pytree.

    Example:
        >>> bool(nnc.optim.all_finite({"a": nnp.ones(2), "b": nnp.asarray(np.inf)}))
        False
    """
    parts = [nnp.all(nnp.isfinite(asarray(x))) for x in tree.leaves(values) if is_trainable(x)]
    result = asarray(True)
    for part in parts:
        result = result & part
    return result


@spelled
def select_tree(pred: ArrayLike, on_true: A, on_false: A) -> A:
    """Returns the tree `on_true` where `pred` is True, else `on_false`, which has its structure; leaves that are no arrays
    stay.

    Args:
        pred: a 0-d bool.
        on_true: a pytree.
        on_false: a pytree of the same structure.

    Example:
        >>> nnc.optim.select_tree(False, {"w": nnp.ones(1)}, {"w": nnp.zeros(1)})
        {'w': Array([0.], dtype=float32)}
    """
    tree.check_same_structure("select_tree", "on_true", on_true, "on_false", on_false)

    def choose(x: Any, y: Any) -> Any:
        return nnp.where(pred, asarray(x), asarray(y)) if tree.is_array(x) else x

    return tree.map(choose, on_true, on_false)


def _times(where: str, values: Any, factor: Array) -> Any:
    def multiply(x: Array) -> Array:
        wide = widen(x)
        return astype(wide * number(factor, wide.dtype), x.dtype)

    return map_trainable(where, multiply, "values", values)


def _float(value: Scalar) -> Array:
    return astype(asarray(value), dtypes.float32)


@dataclass(frozen=True)
class StaticLossScale:
    """Multiplies the loss, so that small gradients do not vanish in float16, by a constant.

    Args:
        loss_scale: the constant.

    Example:
        >>> scaling = nnc.optim.StaticLossScale(1024.0)
        >>> scaling.scale(nnp.ones(())), scaling.unscale({"g": nnp.asarray([2048.0])})
        (Array(1024., dtype=float32), {'g': Array([2.], dtype=float32)})
    """

    loss_scale: Any

    @api_boundary
    def __post_init__(self) -> None:
        check_scalar("StaticLossScale", "loss_scale", self.loss_scale, positive=True)
        object.__setattr__(self, "loss_scale", _float(self.loss_scale))

    def scale(self, values: A) -> A:
        """Returns a loss, or a tree, times the scale.

        Args:
            values: a pytree.
        """
        return _times("scale", values, self.loss_scale)

    def unscale(self, values: A) -> A:
        """Gradients divided by the scale; 16-bit ones become float32, in which nothing is lost.

        Args:
            values: gradients, a pytree.
        """
        inverse = 1 / self.loss_scale
        return map_trainable(
            "unscale", lambda g: widen(g) * number(inverse, widen(g).dtype), "values", values
        )  # fmt: skip

    def adjust(self, grads_finite: Any) -> StaticLossScale:
        """Itself.

        Args:
            grads_finite: accepted, as for `DynamicLossScale.adjust`.
        """
        return self


@dataclass(frozen=True)
class DynamicLossScale:
    """A loss scale that falls where gradients overflow and rises after a while without (Micikevicius et al., "Mixed precision
    training", 2018): loss_scale ← loss_scale / factor on an overflow, · factor after `period` finite steps.

    Args:
        loss_scale: the loss scale of the first step.
        counter: finite steps since the last change.
        period: how many finite steps in a row let the scale rise.
        factor: the factor by which it rises, and by which it falls on an overflow.
        min_loss_scale: it does not fall below.

    Example:
        >>> scaling = nnc.optim.DynamicLossScale(1024.0, period=2)
        >>> for finite in (False, True, True):
        ...     scaling = scaling.adjust(finite)
        ...     print(scaling.loss_scale)
        512.0
        512.0
        1024.0
    """

    loss_scale: Any = 2.0**15
    counter: Any = 0
    period: int = field(default=2000, metadata={"static": True})
    factor: float = field(default=2.0, metadata={"static": True})
    min_loss_scale: float = field(default=1.0, metadata={"static": True})

    @api_boundary
    def __post_init__(self) -> None:
        check_scalar("DynamicLossScale", "loss_scale", self.loss_scale, positive=True)
        check_scalar("DynamicLossScale", "min_loss_scale", self.min_loss_scale, positive=True)
        if self.period < 1 or self.factor <= 1:
            problem = f"period is {self.period}, factor {self.factor}."
            fix = "give a period of at least one step, and a factor above 1."
            raise user_error(ArgumentError, "DynamicLossScale", problem, fix=fix)
        object.__setattr__(self, "loss_scale", _float(self.loss_scale))
        object.__setattr__(self, "counter", astype(asarray(self.counter), dtypes.int64))

    scale = StaticLossScale.scale
    unscale = StaticLossScale.unscale

    def adjust(self, grads_finite: Any) -> DynamicLossScale:
        """Returns the scale of the next step, which depends on whether these gradients were finite.

        Args:
            grads_finite: a 0-d bool, such as `all_finite(grads)`.
        """
        finite = asarray(grads_finite)
        full = self.counter == self.period - 1
        higher = self.loss_scale * self.factor
        risen = nnp.where(full & nnp.isfinite(higher), higher, self.loss_scale)
        fallen = nnp.maximum(self.loss_scale / self.factor, self.min_loss_scale)
        counter = nnp.where(finite & ~full, self.counter + 1, 0)
        return replace(self, loss_scale=nnp.where(finite, risen, fallen), counter=counter)


class ApplyIfFiniteState(NamedTuple):
    """Steps left out in a row, whether the last gradients were finite, all steps left out, the inner state.

    Attributes:
        notfinite_count: steps left out in a row.
        last_finite: whether the last gradients were finite.
        total_notfinite: all steps left out.
        inner_state: state of the inner transformation.

    Example:
        >>> state = nnc.optim.apply_if_finite(nnc.optim.sgd(0.1), 5).init(nnp.ones(2))
        >>> state.notfinite_count
        Array(0, dtype=int64)
    """

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: Any


@spelled
def apply_if_finite(inner: GradientTransformation, max_consecutive_errors: int) -> GradientTransformation:
    """Leaves out steps whose gradients have an inf or a nan: updates are 0 and the inner state stays.

    Args:
        inner: a GradientTransformation.
        max_consecutive_errors: after so many in a row the step is made nevertheless, so that the failure shows.

    Example:
        >>> optimizer = nnc.optim.apply_if_finite(nnc.optim.sgd(1.0), 3)
        >>> optimizer.update(nnp.asarray([np.nan, 1.0]), optimizer.init(nnp.ones(2)))[0]
        Array([0., 0.], dtype=float32)
    """
    where = "apply_if_finite"
    check_transformation(where, "inner", inner)
    check_count(
        where, "max_consecutive_errors", max_consecutive_errors, "give how many steps may be left out in a row.", 0
    )

    def init_fn(params: Any) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(zero_count(), asarray(np.array(True)), zero_count(), inner.init(params))

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, ApplyIfFiniteState)
        finite = all_finite(updates)
        in_a_row = nnp.where(finite, 0, state.notfinite_count + 1)
        applied = finite | (in_a_row > max_consecutive_errors)
        new, inner_state = run_update(inner, updates, state.inner_state, params, extra)
        zeros = map_trainable(where, nnp.zeros_like, "updates", new)
        return select_tree(applied, new, zeros), ApplyIfFiniteState(
            in_a_row, finite, state.total_notfinite + nnp.where(finite, 0, 1),
            select_tree(applied, inner_state, state.inner_state),
        )  # fmt: skip

    return extended(init_fn, update_fn, inner)
