"""Chains by name, conditions, skipped gradients, monitors and bounds of parameters."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError


def steps_of(optimizer: Any, grads: Any, *, compiled: bool = False, **extra: Any) -> list[Any]:
    update = nnc.compile(optimizer.update, max_traces=1) if compiled else optimizer.update
    p = nnp.asarray(np.zeros(2))
    state, path = optimizer.init(p), []
    for g in grads:
        updates, state = update(nnp.asarray(np.asarray(g, np.float64)), state, p, **extra)
        path.append(np.asarray(updates).tolist())
    return path


@pytest.mark.parametrize("compiled", [False, True])
def test_an_inner_transformation_sees_only_the_updates_of_its_condition(compiled: bool) -> None:
    grads = [[1, 2], [10, 20], [3, 4]]
    even = lambda step: step % 2 == 0
    passing = steps_of(optim.conditionally_transform(optim.trace(0.5), even), grads, compiled=compiled)
    assert passing == [[1, 2], [10, 20], [3.5, 5]]
    masking = steps_of(optim.conditionally_mask(optim.trace(0.5), even), grads, compiled=compiled)
    assert masking == [[1, 2], [0, 0], [3.5, 5]]


def test_only_the_chosen_branch_runs() -> None:
    calls: list[int] = []

    def seen(updates: Any, params: Any) -> Any:
        nnc.debug.callback(lambda: calls.append(1))
        return updates

    steps_of(optim.conditionally_mask(optim.stateless(seen), lambda step: step == 1), [[1, 2]] * 4, compiled=True)
    assert calls == [1]


def test_conditions_may_read_extra_arguments() -> None:
    condition = lambda step, value, **rest: value > 1.0
    optimizer = optim.conditionally_transform(optim.scale(3.0), condition, forward_extra_args=True)
    assert steps_of(optimizer, [[1, 2]], value=2.0, other=None) == [[3, 6]]
    assert steps_of(optimizer, [[1, 2]], value=0.0, other=None) == [[1, 2]]


def test_leaves_that_are_no_arrays_pass_conditions() -> None:
    optimizer = optim.conditionally_mask(optim.adam(0.1), lambda step: step > 0)
    params = {"w": nnp.ones(2), "name": "x", "n": np.arange(3)}
    updates, state = optimizer.update(params, optimizer.init(params), params)
    assert updates["name"] == "x" and np.array_equal(updates["w"], [0, 0]) and int(state.step) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_skipped_gradients_are_left_out_of_the_mean(compiled: bool) -> None:
    optimizer = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=optim.skip_not_finite)
    path = steps_of(optimizer, [[1, 2], [np.nan, 5], [3, 4], [np.inf, np.nan]], compiled=compiled)
    assert path == [[0, 0], [0, 0], [-2, -3], [0, 0]]
    large = functools.partial(optim.skip_large_updates, max_squared_norm=25.0)
    optimizer = optim.MultiSteps(optim.sgd(1.0), 1, should_skip_update_fn=large)
    assert steps_of(optimizer, [[1, 2], [3, 4], [0, np.nan]], compiled=compiled) == [[-1, -2], [0, 0], [0, 0]]


def test_measurements_of_skipped_gradients_stay_in_the_state() -> None:
    optimizer = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=optim.skip_not_finite)
    state = optimizer.init(nnp.zeros(2))
    _, state = optimizer.update(nnp.asarray([np.nan, np.inf]), state)
    assert int(state.skip_state["num_not_finite"]) == 2 and bool(state.skip_state["should_skip"])
    assert int(state.mini_step) == 0


def test_states_of_monitors_keep_their_structure() -> None:
    optimizer = optim.chain(
        optim.monitor(
            {"norm": optim.global_norm, "mean": optim.measure_with_ema(optim.global_norm, 0.5, debias=False)}
        ),
        optim.snapshot("scaled", optim.global_norm),
        optim.sgd(1.0),
    )
    state = optimizer.init(nnp.zeros(2))
    step = nnc.compile(optimizer.update, max_traces=1)
    for g in ([3.0, 4.0], [0.0, 1.0]):
        updates, state = step(nnp.asarray(g), state)
    assert float(state[0].measurements["norm"]) == 1.0 == float(state[1].measurement["scaled"])
    assert float(state[0].measurements["mean"]) == 0.5 * (0.5 * 5.0) + 0.5 * 1.0
    assert np.array_equal(updates, [0, -1])


def test_parameters_are_kept_from_falling_below_zero() -> None:
    optimizer = optim.chain(optim.sgd(1.0), optim.keep_params_nonnegative())
    p = nnp.asarray([1.0, 1.0, 0.0])
    updates, _ = optimizer.update(nnp.asarray([3.0, 0.5, -1.0]), optimizer.init(p), p)
    assert np.array_equal(optim.apply_updates(p, updates), [0.0, 0.5, 1.0])


def test_nans_are_replaced_and_their_arrays_named() -> None:
    transformation = optim.zero_nans()
    grads = {"a": nnp.asarray([np.nan, np.inf]), "b": nnp.ones(2), "n": np.arange(2)}
    updates, state = transformation.update(grads, transformation.init(grads))
    assert np.array_equal(updates["a"], [0, np.inf]) and np.array_equal(updates["b"], [1, 1])
    assert bool(state.found_nan["a"]) and not bool(state.found_nan["b"])


def test_trees_are_copied_in_periods() -> None:
    new, old = {"w": nnp.ones(1)}, {"w": nnp.zeros(1)}
    chosen = [float(optim.periodic_update(new, old, nnp.asarray(t), 3)["w"][0]) for t in range(5)]
    assert chosen == [1, 0, 0, 1, 0]


def test_functions_of_arrays_get_the_parameters_beside_them() -> None:
    decay = optim.stateless_with_tree_map(lambda u, p: u if p is None else u + 0.5 * p)
    assert steps_of(decay, [[1, 2]]) == [[1, 2]]
    updates, _ = decay.update({"w": nnp.ones(1), "n": "x"}, decay.init(None), {"w": nnp.ones(1), "n": "x"})
    assert float(updates["w"][0]) == 1.5 and updates["n"] == "x"


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "a condition that is a bool": (
        lambda: optim.conditionally_mask(optim.sgd(0.1), True), ArgumentTypeError, "should_transform_fn is True",  # type: ignore[arg-type]
    ),
    "a transformation that was not made": (
        lambda: optim.conditionally_transform(optim.sgd, lambda t: True), ArgumentTypeError, "inner is",  # type: ignore[arg-type]
    ),
    "a rule that is a bool": (
        lambda: optim.MultiSteps(optim.sgd(0.1), 2, should_skip_update_fn=True), ArgumentTypeError, "should_skip_update_fn is True",  # type: ignore[arg-type]
    ),
    "a measure that is a number": (lambda: optim.monitor({"norm": 1.0}), ArgumentTypeError, r"measures\['norm'\] is 1.0"),  # type: ignore[dict-item]
    "a list of measures": (lambda: optim.monitor([optim.global_norm]), ArgumentTypeError, "measures is a list"),  # type: ignore[arg-type]
    "a measure and its name exchanged": (
        lambda: optim.snapshot(optim.global_norm, "norm"), ArgumentTypeError, "measure is 'norm'",  # type: ignore[arg-type]
    ),
    "a chain without names": (lambda: optim.named_chain(optim.sgd(0.1)), ArgumentTypeError, "argument 0 is"),  # type: ignore[arg-type]
    "a name that comes twice": (
        lambda: optim.named_chain(("a", optim.sgd(0.1)), ("a", optim.sgd(0.1))), ArgumentError, "names come twice",
    ),
    "a sum of nothing": (lambda: optim.apply_every(0), ArgumentError, "k is 0"),
    "no function": (lambda: optim.stateless(optim.sgd(0.1)), ArgumentTypeError, "f is"),  # type: ignore[arg-type]
    "no norm": (lambda: optim.normalize_by_update_norm(0.0), ArgumentError, "scale_factor is 0.0"),
    "an order of complex numbers": (
        lambda: optim.keep_params_nonnegative().update(nnp.asarray(np.ones(1, complex)), optim.EmptyState(), nnp.ones(1)),
        DTypeError, "complex numbers have no order",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named_with_a_remedy(name: str) -> None:
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=f"{text}(.|\n)*Fix:"):
        call()
