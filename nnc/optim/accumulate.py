"""Averages over steps: of updates, of parameters, of gradients before one step is made, of fast and slow weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import check_count, shorten
from nnc.optim.arguments import Scalar, check_scalar, check_state
from nnc.optim.base import (
    GradientTransformation,
    check_transformation,
    extended,
    make_state,
    map_trainable,
    number,
    run_update,
    stateful,
    widen,
)
from nnc.optim.moments import Correction, average, check_decays, zeros_state
from nnc.optim.precision import select_tree
from nnc.optim.transforms import zero_count, zeros_for
from nnc.typing import A, DTypeLike

__all__ = [
    "EmaState",
    "LookaheadParams",
    "LookaheadState",
    "MultiSteps",
    "MultiStepsState",
    "ema",
    "incremental_update",
    "lookahead",
]

# -- moving averages ---------------------------------------------------------------------------------------------------


class EmaState(NamedTuple):
    """Count of updates and the running mean.

    Attributes:
        count: how many updates were made, a 0-d integer.
        ema: running mean, a tree like the updates.

    Example:
        >>> state = nnc.optim.ema(0.9).init(nnp.ones(2))
        >>> state.ema
        Array([0., 0.], dtype=float32)
    """

    count: Any
    ema: Any


@spelled
def ema(decay: Scalar, debias: bool = True, accumulator_dtype: DTypeLike | None = None) -> GradientTransformation:
    """Replaces updates by their running mean; given parameters in place of updates it averages those.

    m ← decay · m + (1 − decay) · u,    u' = m / (1 − decayᵗ),  or m where debias is False

    Args:
        decay: in [0, 1).
        debias: divide by 1 − decayᵗ, as the mean starts at 0.
        accumulator_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Example:
        >>> average = nnc.optim.ema(0.9)
        >>> state = average.init(nnp.zeros(1))
        >>> for x in (1.0, 2.0):
        ...     mean, state = average.update(nnp.asarray([x]), state)
        >>> mean
        Array([1.5263158], dtype=float32)
    """
    check_decays("ema", decay=decay)

    def init_fn(params: Any) -> EmaState:
        return EmaState(zero_count(), zeros_state("ema", params, accumulator_dtype))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1

        def mix(u: Array, m: Array) -> Array:
            wide = widen(u)
            return average(decay, wide, astype(m, wide.dtype))

        def value(u: Array, m: Array) -> Array:
            return astype(correct(m) if debias else m, u.dtype)

        means = map_trainable("ema", mix, "updates", updates, ema=state.ema)
        correct = Correction(decay, count, *([means] if debias else []))
        kept = map_trainable("ema", lambda m, new: astype(new, m.dtype), "ema", state.ema, updates=means)
        return map_trainable("ema", value, "updates", updates, ema=means), EmaState(count, kept)

    return stateful("ema", EmaState, init_fn, update_fn)


@spelled
def incremental_update(new_tensors: A, old_tensors: A, step_size: Scalar) -> A:
    """Moves one tree towards another: step_size · new + (1 − step_size) · old, as target networks and averaged weights do.

    Args:
        new_tensors: tree to move towards.
        old_tensors: tree of the same structure to move.
        step_size: share of the new tree, in [0, 1].

    Example:
        >>> nnc.optim.incremental_update({"w": nnp.ones(1)}, {"w": nnp.zeros(1)}, 0.25)
        {'w': Array([0.25], dtype=float32)}
    """
    check_scalar("incremental_update", "step_size", step_size)

    def move(old: Array, new: Any) -> Array:
        wide = widen(old)
        share = number(step_size, wide.dtype)
        return astype(astype(as_operand(new), wide.dtype) * share + wide * (1 - share), old.dtype)

    return map_trainable("incremental_update", move, "old_tensors", old_tensors, new_tensors=new_tensors)


# -- gradient accumulation ---------------------------------------------------------------------------------------------


class MultiStepsState(NamedTuple):
    """Gradients of this step so far, steps made, the inner state, and the accumulated gradients.

    Attributes:
        mini_step: gradients of this step so far.
        gradient_step: steps made.
        inner_opt_state: state of the inner optimizer.
        acc_grads: accumulated gradients, a tree like the parameters.
        skip_state: measurements of `should_skip_update_fn`.

    Example:
        >>> state = nnc.optim.MultiSteps(nnc.optim.sgd(0.1), 4).init(nnp.ones(2))
        >>> state.mini_step
        Array(0, dtype=int64)
    """

    mini_step: Any
    gradient_step: Any
    inner_opt_state: Any
    acc_grads: Any
    skip_state: Any = ()


class MultiSteps:
    """Accumulates gradients over k calls and makes one step of their mean; in between, updates are 0.

    Args:
        opt: the optimizer of the steps.
        every_k_schedule: k, or a function from the number of steps made to k.
        use_grad_mean: False adds gradients up.
        should_skip_update_fn: (gradients, steps made, params) -> (a 0-d bool, measurements): gradients are left out where the
            bool is True, such as `skip_not_finite`; the measurements are kept in the state.
        accumulator_dtype: default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError, ArgumentError: opt is no transformation, k no positive int.

    Example:
        >>> optimizer = nnc.optim.MultiSteps(nnc.optim.sgd(1.0), 2)
        >>> state = optimizer.init(nnp.zeros(1))
        >>> for g in (1.0, 3.0):
        ...     updates, state = optimizer.update(nnp.asarray([g]), state)
        ...     print(updates, optimizer.has_updated(state))
        [0.] False
        [-2.] True
    """

    @spelled
    def __init__(
        self, opt: GradientTransformation, every_k_schedule: int | Callable[[Any], Any], use_grad_mean: bool = True,
        should_skip_update_fn: Callable[..., tuple[Any, Any]] | None = None, accumulator_dtype: Any = None,
    ) -> None:  # fmt: skip
        check_transformation("MultiSteps", "opt", opt)
        if not callable(every_k_schedule):
            fix = "give the number of gradients of one step, or a function from the count of steps to it."
            check_count("MultiSteps", "every_k_schedule", every_k_schedule, fix)
        self._opt, self._mean, self._dtype = opt, use_grad_mean, accumulator_dtype
        self._every = every_k_schedule
        if should_skip_update_fn is not None and not callable(should_skip_update_fn):
            raise user_error(
                ArgumentTypeError,
                "MultiSteps",
                f"should_skip_update_fn is {shorten(should_skip_update_fn)}, not a function of gradients, count and parameters.",
                fix="pass nnc.optim.skip_not_finite.",
            )
        self._skip = should_skip_update_fn

    def init(self, params: Any) -> MultiStepsState:
        """Returns the state before the first gradient.

        Args:
            params: a pytree.
        """
        grads = make_state("MultiSteps", lambda p: zeros_for(p, self._dtype), params)
        zeros = map_trainable("MultiSteps", nnp.zeros_like, "params", params)
        skip_state = () if self._skip is None else self._skip(zeros, zero_count(), params)[1]
        return MultiStepsState(zero_count(), zero_count(), self._opt.init(params), grads, skip_state)

    def update(self, updates: A, state: MultiStepsState, params: Any = None, **extra: Any) -> tuple[A, MultiStepsState]:
        """Updates that are 0 but for every k-th call, and the next state.

        Args:
            updates: gradients, a tree like the parameters.
            state: from `init` or the last `update`.
            params: the parameters, for optimizers that need them.
            **extra: handed to the optimizer.
        """
        check_state("MultiSteps", state, MultiStepsState)
        k = astype(asarray(self._every(state.gradient_step) if callable(self._every) else self._every), dtypes.int64)

        def add(total: Array, g: Any) -> Array:
            wide = widen(total)
            fresh = astype(asarray(g), wide.dtype)
            if self._mean:
                n = astype(state.mini_step, dtypes.real_dtype(wide.dtype))
                return astype(wide + (fresh - wide) / (n + 1), total.dtype)
            return astype(wide + fresh, total.dtype)

        total = map_trainable("MultiSteps", add, "acc_grads", state.acc_grads, updates=updates)
        grads = map_trainable("MultiSteps", lambda g, acc: astype(acc, g.dtype), "updates", updates, acc_grads=total)
        new, inner_state = run_update(self._opt, grads, state.inner_opt_state, params, extra)
        due = state.mini_step == k - 1
        zeros = map_trainable("MultiSteps", nnp.zeros_like, "updates", new)
        none = map_trainable("MultiSteps", nnp.zeros_like, "acc_grads", total)
        after = MultiStepsState(
            nnp.where(due, 0, state.mini_step + 1), state.gradient_step + astype(due, dtypes.int64),
            select_tree(due, inner_state, state.inner_opt_state), select_tree(due, none, total), state.skip_state,
        )  # fmt: skip
        moves = select_tree(due, new, zeros)
        if self._skip is None:
            return moves, after
        skip, measured = self._skip(updates, state.gradient_step, params)
        kept = select_tree(skip, state, after)
        return select_tree(skip, zeros, moves), kept._replace(skip_state=measured)

    def has_updated(self, state: MultiStepsState) -> Array:
        """Whether the last call made a step.

        Args:
            state: from the last `update`.
        """
        return (state.mini_step == 0) & (state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformation:
        """This as a link for `chain`."""
        return extended(self.init, self.update, self._opt)


# -- lookahead ---------------------------------------------------------------------------------------------------------


class LookaheadParams(NamedTuple):
    """Two sets of parameters: gradients are taken at `fast`, `slow` is learnt.

    Attributes:
        fast: parameters at which gradients are taken.
        slow: parameters that are learnt.

    Example:
        >>> nnc.optim.LookaheadParams.init_synced(nnp.ones(2)).slow
        Array([1., 1.], dtype=float32)
    """

    fast: Any
    slow: Any

    @classmethod
    def init_synced(cls, params: Any) -> LookaheadParams:
        """Both the same.

        Args:
            params: a pytree, which both begin as.
        """
        return cls(params, params)


class LookaheadState(NamedTuple):
    """The state of the fast optimizer, and its steps since the last synchronisation.

    Attributes:
        fast_state: state of the fast optimizer.
        steps_since_sync: its steps since the last synchronisation.

    Example:
        >>> optimizer = nnc.optim.lookahead(nnc.optim.sgd(0.1), 5, 0.5)
        >>> state = optimizer.init(nnc.optim.LookaheadParams.init_synced(nnp.ones(2)))
        >>> state.steps_since_sync
        Array(0, dtype=int64)
    """

    fast_state: Any
    steps_since_sync: Any


@spelled
def lookahead(
    fast_optimizer: GradientTransformation, sync_period: int, slow_step_size: Scalar, reset_state: bool = False
) -> GradientTransformation:
    """k steps forward, one step back (Zhang et al., "Lookahead optimizer", 2019).

    Every sync_period steps:  slow ← slow + slow_step_size · (fast − slow),  fast ← slow

    Args:
        fast_optimizer: makes the steps.
        sync_period: how many fast steps make a slow one.
        slow_step_size: up to 1.
        reset_state: start it anew at each synchronisation.

    Raises:
        ArgumentTypeError (from update): params is no LookaheadParams.
        ArgumentError: sync_period is no positive int.

    Example:
        >>> optimizer = nnc.optim.lookahead(nnc.optim.sgd(1.0), sync_period=1, slow_step_size=0.5)
        >>> params = nnc.optim.LookaheadParams.init_synced(nnp.ones(1))
        >>> updates, state = optimizer.update(nnp.ones(1), optimizer.init(params), params)
        >>> nnc.optim.apply_updates(params, updates)
        LookaheadParams(fast=Array([0.5], dtype=float32), slow=Array([0.5], dtype=float32))
    """
    where = "lookahead"
    check_transformation(where, "fast_optimizer", fast_optimizer)
    check_scalar(where, "slow_step_size", slow_step_size)
    check_count(where, "sync_period", sync_period, "choose 5.")

    def check(params: Any) -> None:
        if not isinstance(params, LookaheadParams):
            problem = f"params is a {type(params).__name__}, not a LookaheadParams."
            fix = "keep params = LookaheadParams.init_synced(params); take gradients at params.fast."
            raise user_error(ArgumentTypeError, where, problem, fix=fix)

    def init_fn(params: Any) -> LookaheadState:
        check(params)
        return LookaheadState(fast_optimizer.init(params.fast), zero_count())

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, LookaheadState)
        check(params)
        steps, fast_state = run_update(fast_optimizer, updates, state.fast_state, params.fast, extra)
        sync = state.steps_since_sync == sync_period - 1

        def gap(u: Array, fast: Any, slow: Any) -> Array:
            wide = widen(u)
            return nnp.where(
                sync, astype(as_operand(fast), wide.dtype) + wide - astype(as_operand(slow), wide.dtype), 0
            )

        def back(u: Array, ahead: Array) -> Array:
            return astype(widen(u) - (1 - number(slow_step_size, ahead.dtype)) * ahead, u.dtype)

        def learn(u: Array, ahead: Array) -> Array:
            return astype(number(slow_step_size, ahead.dtype) * ahead, u.dtype)

        gaps = map_trainable(where, gap, "updates", steps, fast=params.fast, slow=params.slow)
        fast, slow = (map_trainable(where, move, "updates", steps, gaps=gaps) for move in (back, learn))
        if reset_state:
            fast_state = select_tree(sync, fast_optimizer.init(params.fast), fast_state)
        since = (state.steps_since_sync + 1) % sync_period
        return LookaheadParams(fast, slow), LookaheadState(fast_state, since)

    return extended(init_fn, update_fn, fast_optimizer)
