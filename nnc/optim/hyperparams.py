"""Hyperparameters in the state of an optimizer, where they can be read and changed between compiled steps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from nnc import tree
from nnc.array.array import asarray
from nnc.array.promote import WIDE, as_operand, dtype_of, is_weak
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.arguments import check_state
from nnc.optim.base import GradientTransformation, GradientTransformationExtraArgs, extended, run_update
from nnc.optim.transforms import zero_count

__all__ = ["InjectHyperparamsState", "inject_hyperparams"]


class InjectHyperparamsState(NamedTuple):
    """Count of updates, the hyperparameters as 0-d arrays by name, the states of their schedules, the inner state.

    Attributes:
        count: how many updates were made, a 0-d integer.
        hyperparams: 0-d arrays by name.
        hyperparams_states: states of stateful schedules by name.
        inner_state: state of the inner transformation.

    Example:
        >>> state = nnc.optim.inject_hyperparams(nnc.optim.sgd)(learning_rate=0.5).init(nnp.ones(2))
        >>> state.hyperparams
        {'learning_rate': Array(0.5, dtype=float32)}
    """

    count: Any
    hyperparams: dict[str, Any]
    hyperparams_states: dict[str, Any]
    inner_state: Any


@spelled
def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation], static_args: str | Iterable[str] = ()
) -> Callable[..., GradientTransformation]:
    """Wraps a function that makes an optimizer: floats, arrays and schedules that it is given become part of the state.

    `state.hyperparams` shows the values of the last update, in float32, or in float64 where a parameter has that dtype. Arrays
    there may be replaced between updates without a new trace; values of schedules are computed anew from the count each time.

    A schedule with a state has methods `init() -> state`, `update(state, **extra) -> state` and `__call__(state, **extra)`;
    `extra` are the keyword arguments of the optimizer's `update`, such as the loss.

    Defaults stay constants, unlike in Optax: pass the arguments that are to change.

    An argument that is a number may be given as a schedule, too, also where the function itself takes numbers alone.

    Args:
        inner_factory: such as `nnc.optim.adam`.
        static_args: names of arguments that stay as they are; bools, ints, None and strings always do. Name here
            arguments that are functions but no schedules, such as masks.

    Raises:
        ArgumentError: static_args names no argument.

    Example:
        >>> optimizer = nnc.optim.inject_hyperparams(nnc.optim.sgd)(learning_rate=0.5)
        >>> state = optimizer.init(nnp.ones(1))
        >>> state.hyperparams["learning_rate"] = nnp.asarray(0.25)
        >>> optimizer.update(nnp.ones(1), state)[0]
        Array([-0.25], dtype=float32)
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if not static <= set(signature.parameters):
        problem = f"{', '.join(sorted(static - set(signature.parameters)))} is no argument."
        fix = f"the arguments are {', '.join(signature.parameters)}."
        raise user_error(ArgumentError, "inject_hyperparams", problem, fix=fix)

    @functools.wraps(inner_factory)
    def make(*args: Any, **kwargs: Any) -> GradientTransformation:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            inner_factory(*args, **kwargs)  # words the mistake
            raise
        dynamic = {name: x for name, x in bound.arguments.items() if name not in static and _is_number(x)}
        schedules = {name: x for name, x in bound.arguments.items() if name not in static and callable(x)}
        stateful: dict[str, Any] = {
            name: f for name, f in schedules.items() if hasattr(f, "init") and hasattr(f, "update")
        }
        fixed = {name: x for name, x in bound.arguments.items() if name not in dynamic and name not in schedules}

        def build(values: dict[str, Any]) -> GradientTransformation:
            return inner_factory(**fixed, **values)

        def at(
            count: Any, values: dict[str, Any], states: dict[str, Any], extra: dict[str, Any], like: Any
        ) -> dict[str, Any]:
            """Returns the values of this update: a stateful schedule gets its state, any other the count."""
            found = {k: f(states[k], **extra) if k in stateful else f(count) for k, f in schedules.items()}
            dtype = _dtype_for(like)
            return {name: _scalar(x, dtype) for name, x in {**values, **found}.items()}

        # made of numbers as the user wrote them, so that errors show these
        first = build({**dynamic, **at(zero_count(), {}, {name: f.init() for name, f in stateful.items()}, {}, ())})

        def init_fn(params: Any) -> InjectHyperparamsState:
            states = {name: f.init() for name, f in stateful.items()}
            values = at(zero_count(), dynamic, states, {}, params)
            return InjectHyperparamsState(zero_count(), values, states, build(values).init(params))

        def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
            check_state("inject_hyperparams", state, InjectHyperparamsState)
            values = at(state.count, state.hyperparams, state.hyperparams_states, extra, updates)
            states = {name: f.update(state.hyperparams_states[name], **extra) for name, f in stateful.items()}
            updates, inner_state = run_update(build(values), updates, state.inner_state, params, extra)
            return updates, InjectHyperparamsState(state.count + 1, values, states, inner_state)

        if stateful:  # they may read the extra arguments
            return GradientTransformationExtraArgs(init_fn, update_fn)
        return extended(init_fn, update_fn, first)

    return make


def _is_number(x: Any) -> bool:
    return tree.is_array(x) and not isinstance(x, (bool, int))


def _dtype_for(arrays: Any) -> dtypes.DType:
    """Returns the dtype of hyperparameters: float64 where an array has 64 bits, so that the steps keep their digits."""
    leaves = (leaf for leaf in tree.leaves(arrays) if tree.is_array(leaf))
    return dtypes.float64 if any(dtype_of(leaf) in WIDE for leaf in leaves) else dtypes.float32


def _scalar(x: Any, dtype: dtypes.DType) -> Any:
    """Returns a 0-d array; numbers take the dtype, and arrays keep theirs."""
    value = asarray(x)
    return asarray(x, dtype) if is_weak(as_operand(x)) and dtypes.is_float(value.dtype) else value
