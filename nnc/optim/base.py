"""The protocol of optimizers, how they chain, and how they walk over pytrees.

Only floating-point and complex leaves are updated. Integer arrays, strings, functions and None stay as they are. Arithmetic
on 16-bit floats is done in float32, and each update has the dtype of its gradient.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

from nnc import tree
from nnc.array.array import Array, as_value, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.base.context import get_context, set_context, with_mode
from nnc.base.source import user_source
from nnc.calls.specialise import specialised_in_traces
from nnc.calls.spelling import spelled
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentTypeError, ShapeError, user_error
from nnc.errors.errors import shorten
from nnc.errors.names import add_missing, names_without_missing
from nnc.errors.tracebacks import api_boundary
from nnc.optim.arguments import Scalar, check_params, check_state, is_trainable
from nnc.typing import A, S

__all__ = [
    "EmptyState",
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "apply_updates",
    "chain",
    "identity",
]


class Init(Protocol):
    """The function that makes the first state for parameters."""

    def __call__(self, params: Any, /) -> object:
        """Returns the state before the first update."""


class Update(Protocol):
    """The function that makes updates of gradients."""

    def __call__(self, updates: A, state: S, params: object = None, **extra: object) -> tuple[A, S]:
        """Returns the updates and the next state."""


class _Functions(NamedTuple):
    init: Init
    update: Update


class GradientTransformation(_Functions):
    """Two pure functions that make an optimizer.

    `init(params) -> state` makes a pytree of arrays. `update(updates, state, params=None) -> (updates, state)` takes gradients
    (or the updates of an earlier transformation) and returns the terms to be added to the parameters. Both can be traced, so a
    training step compiles as a whole. `update` accepts further keyword arguments (`value=`, `grad=`, `value_fn=`, …) and ignores
    them where it reads none, so one training loop serves all optimizers.

    Args:
        init: params -> state.
        update: (updates, state, params=None) -> (updates, state).

    Example:
        >>> optimizer = nnc.optim.sgd(0.5)
        >>> params = {"w": nnp.asarray([1.0, 2.0])}
        >>> updates, state = optimizer.update({"w": nnp.asarray([1.0, -1.0])}, optimizer.init(params), params)
        >>> nnc.optim.apply_updates(params, updates)
        {'w': Array([0.5, 2.5], dtype=float32)}
    """

    __slots__ = ()
    _reads_extra = False

    def __dir__(self) -> list[str]:
        return names_without_missing(type(self), super().__dir__())

    def __new__(cls, init: Init, update: Callable[..., tuple[Any, Any]]) -> Self:
        """Returns the transformation of two functions, behind boundaries for tracebacks."""
        if not callable(init) or not callable(update):  # the transformation's user says so
            return super().__new__(cls, init, update)
        return super().__new__(cls, api_boundary(init), api_boundary(_with_extra(update, cls._reads_extra)))


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose `update` reads keyword arguments, such as `value=`, `grad=` and `value_fn=` of line searches.

    Args:
        init: params -> state.
        update: (updates, state, params=None, **extra) -> (updates, state).

    Example:
        >>> update = lambda updates, state, params=None, *, value=1.0: (updates * value, state)
        >>> transformation = nnc.optim.GradientTransformationExtraArgs(lambda params: (), update)
        >>> transformation.update(nnp.ones(2), (), value=3.0)[0]
        Array([3., 3.], dtype=float32)
    """

    __slots__ = ()
    _reads_extra = True


def _with_extra(update: Callable[..., tuple[Any, Any]], reads_extra: bool) -> Callable[..., tuple[Any, Any]]:
    """`update` with any keyword arguments: those that it does not read are ignored, so one training loop serves all optimizers."""

    @functools.wraps(update)
    def call(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        for name in _MISSPELT & extra.keys():
            fix = "call update(grads, state, params), or write params=params."
            raise user_error(ArgumentTypeError, "update", f"it has no argument {name!r}.", fix=fix)
        return update(updates, state, params, **extra) if reads_extra else update(updates, state, params)

    del call.__wrapped__  # its signature is the one that callers see
    return call


add_missing(GradientTransformation, "nnc.optim.GradientTransformation")

_MISSPELT = frozenset({"param", "parameter", "parameters"})


def extended(init: Init, update: Callable[..., Any], *inner: GradientTransformation) -> GradientTransformation:
    """Returns a transformation around others, which reads extra arguments where one of those does."""
    reads = any(isinstance(part, GradientTransformationExtraArgs) for part in inner)
    return (GradientTransformationExtraArgs if reads else GradientTransformation)(init, update)


def run_update(
    inner: GradientTransformation, updates: Any, state: Any, params: Any, extra: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns the update of `inner`, which receives the extra arguments only if it takes them."""
    update: Callable[..., tuple[Any, Any]] = inner.update
    return update(updates, state, params, **(extra if isinstance(inner, GradientTransformationExtraArgs) else {}))


def check_transformation(where: str, name: str, value: Any) -> None:
    """Raises ArgumentTypeError unless `value` is a GradientTransformation."""
    if not isinstance(value, GradientTransformation):
        problem = f"{name} is {shorten(value)}, not a GradientTransformation."
        fix = "pass the results of functions such as nnc.optim.clip(1.0), not the functions themselves, and no list."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)


class EmptyState(NamedTuple):
    """The state of a transformation that has none.

    Example:
        >>> nnc.optim.scale(2.0).init(nnp.ones(2))
        EmptyState()
    """


def stateful(
    where: str,
    kind: type,
    init: Init,
    update: Callable[[Any, Any, Any], tuple[Any, Any]],
    *,
    reads_params: bool = False,
) -> GradientTransformation:
    """Returns a transformation whose update refuses states that are no `kind`, and the lack of parameters that it reads."""

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        check_state(where, state, kind)
        if reads_params:
            check_params(where, params)
        return update(updates, state, params)

    return GradientTransformation(init, update_fn)


def stateless(where: str, update: Callable[[Any, Any], Any], *, reads_params: bool = False) -> GradientTransformation:
    """Returns the transformation whose updates are `update(updates, params)`."""

    def update_fn(updates: Any, state: Any, params: Any) -> tuple[Any, Any]:
        return update(updates, params), state

    return stateful(where, EmptyState, lambda params: EmptyState(), update_fn, reads_params=reads_params)


def leafwise(where: str, function: Callable[..., Any], *, reads_params: bool = False) -> GradientTransformation:
    """Returns the transformation that applies `function` to each update, and with `reads_params` to its parameter, too."""

    def update(updates: Any, params: Any) -> Any:
        others = {"params": params} if reads_params else {}
        return map_trainable(where, function, "updates", updates, **others)

    return stateless(where, update, reads_params=reads_params)


@spelled
def identity() -> GradientTransformation:
    """Returns the transformation that changes nothing.

    Example:
        >>> nnc.optim.identity().update(1.0, nnc.optim.identity().init(1.0))
        (1.0, EmptyState())
    """
    return stateless("identity", lambda updates, params: updates)


@spelled
def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """Applies transformations one after the other; the state is the tuple of their states.

    Args:
        transformations: the first receives the gradients, the last gives the updates. Extra arguments of `update` go to
            transformations that take them.

    Raises:
        ArgumentTypeError: one is no GradientTransformation.

    Example:
        >>> optimizer = nnc.optim.chain(nnc.optim.clip_by_global_norm(1.0), nnc.optim.sgd(0.5))
        >>> optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.zeros(2)))[0]
        Array([-0.3, -0.4], dtype=float32)
    """
    for i, transformation in enumerate(transformations):
        check_transformation("chain", f"argument {i}", transformation)

    def init_fn(params: Any) -> tuple[Any, ...]:
        return tuple(transformation.init(params) for transformation in transformations)

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("chain", state, tuple)
        if len(state) != len(transformations):
            problem = f"its state has {len(state)} parts for {len(transformations)} transformations."
            fix = "make the state with this optimizer's own init(params)."
            raise user_error(ArgumentTypeError, "chain", problem, fix=fix)
        states = []
        for transformation, part in zip(transformations, state, strict=True):
            updates, part = run_update(transformation, updates, part, params, extra)
            states.append(part)
        return updates, tuple(states)

    return extended(init_fn, update_fn, *transformations)


@spelled
def apply_updates(params: A, updates: object) -> A:
    """Returns the parameters plus their updates; every leaf keeps the dtype that it has in `params`.

    Args:
        params: a pytree.
        updates: a pytree of the same structure and shapes. Leaves of `params` that are not floating-point stay as they
            are.

    Raises:
        TreeError, ShapeError: the two do not match; every differing path is listed.

    Example:
        >>> nnc.optim.apply_updates({"w": nnp.ones(2), "name": "a"}, {"w": nnp.ones(2), "name": "a"})
        {'w': Array([2., 2.], dtype=float32), 'name': 'a'}
    """
    check_params("apply_updates", params)

    def add(p: Array, u: Any) -> Array:
        wide = widen(p)
        return astype(wide + astype(as_operand(u), wide.dtype), p.dtype)

    return map_trainable("apply_updates", add, "params", params, updates=updates)


# -- walking over trees ------------------------------------------------------------------------------------------------


def map_trainable(where: str, function: Callable[..., Any], name: str, first: Any, **others: Any) -> Any:
    """Applies `function` to the trainable leaves of `first` and those beside them in the other trees.

    Raises:
        TreeError: structures differ.
        ShapeError: shapes of corresponding leaves differ.
    """
    leaves, treedef = tree.flatten(first)
    columns = []
    for other_name, other in others.items():
        other_leaves, other_treedef = tree.flatten(other)
        if other_treedef != treedef:
            raise tree.tree_mismatch(where, name, first, other_name, other)
        columns.append(other_leaves)
    context, results = get_context(), []
    formula = specialised_in_traces(function, may_capture=True)
    alike = Counter([getattr(leaf, "spec", None) for leaf in leaves]) if context.staging is not None else {}
    with set_context(source=context.source or user_source()):  # found once for all leaves
        for i, (leaf, *rest) in enumerate(zip(leaves, *columns, strict=True)):
            if not is_trainable(leaf):
                results.append(leaf)
                continue
            x = asarray(leaf)
            rest = [asarray(y) if is_foreign(type(y)) else y for y in rest]
            for other_name, other_leaf in zip(others, rest, strict=True):
                if getattr(other_leaf, "shape", ()) != x.shape:
                    raise _shape_error(where, name, first, i, x, other_name, other_leaf)
            if alike.get(x.spec) == 1:  # to record calls that no other leaf needs would gain nothing
                with with_mode("unspecialised"):
                    results.append(function(x, *rest))
            else:
                results.append(formula(x, *rest))
    return tree.unflatten(treedef, results)


def _shape_error(where: str, name: str, first: Any, i: int, x: Array, other_name: str, other: Any) -> ShapeError:
    path = tree.leaves_with_path(first)[i][0]
    problem = f"{name} and {other_name} differ in shape at {path or 'the root'}."
    operands = {name: x.spec, other_name: getattr(other, "spec", repr(other))}
    fix = "take the gradient with respect to these parameters, and the state from init of these parameters."
    return user_error(ShapeError, where, problem, operands=operands, fix=fix)


def make_state(where: str, function: Callable[[Array], Array], params: Any) -> Any:
    """Returns a tree like `params` with `function` of each trainable leaf; integer leaves become zeros, so that nothing is
    shared.
    """
    check_params(where, params)

    def fill(leaf: Any) -> Any:
        if is_trainable(leaf):
            return function(asarray(leaf))
        return asarray(leaf) * 0 if tree.is_array(leaf) and not dtypes.is_bool(asarray(leaf).dtype) else leaf

    return tree.map(fill, params)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def widen(x: Array) -> Array:
    """`x` in the dtype in which arithmetic is done: float32 for the 16-bit floats."""
    return astype(x, dtypes.accumulator(x.dtype))


def scalar(value: Any) -> Array:
    """Returns a hyperparameter as an array: numbers are weak, so that they keep all their digits until they meet an array."""
    array: Array = as_value(as_operand(value))
    return array


def number(value: Scalar, dtype: dtypes.DType) -> Any:
    """Returns a hyperparameter as a factor that does not change `dtype`: Python numbers are weak, arrays are converted."""
    return value if isinstance(value, (int, float)) else astype(as_operand(value), dtypes.real_dtype(dtype))
