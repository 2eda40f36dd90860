from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from tests.contract.optim.table import ROWS, Row

every_optimizer = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
with_formula = pytest.mark.parametrize("row", [row for row in ROWS if row.reference], ids=lambda row: row.name)
DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Model:
    w: Any
    extra: Any = None
    activation: Any = np.tanh
    name: str = "model"
    depth: int = 3
    meta: Any = field(default=0.5, metadata={"static": True})


def gradients(steps: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(steps, 3)))


def as_numpy(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


# -- common to all optimizers ------------------------------------------------------------------------------------------


@with_formula
def test_it_takes_the_steps_of_its_formula(row: Row) -> None:
    assert row.reference is not None
    optimizer, reference = row.make(0.1), row.reference()
    p = expected = np.array([1.0, -2.0, 3.0])
    state = optimizer.init(p)
    for g in gradients(5):
        updates, state = optimizer.update(nnp.asarray(g), state, p)
        p = optim.apply_updates(p, updates)
        expected = reference(0.1, expected, g)
        assert np.allclose(p, expected, rtol=1e-12, atol=1e-14)


@with_formula
def test_a_schedule_gives_the_rate_of_each_step(row: Row) -> None:
    assert row.reference is not None
    rates = [0.5, 0.25, 0.125, 0.0625]
    optimizer, reference = row.make(lambda count: nnp.asarray(rates)[count]), row.reference()
    p = expected = np.array([1.0, -2.0, 3.0])
    state = optimizer.init(p)
    for rate, g in zip(rates, gradients(4), strict=True):
        updates, state = optimizer.update(nnp.asarray(g), state, p)
        p = optim.apply_updates(p, updates)
        expected = reference(rate, expected, g)
        assert np.allclose(p, expected, rtol=1e-6)


@every_optimizer
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_keeps_the_dtype_and_the_structure_of_its_state(row: Row, dtype: str) -> None:
    for rate in (0.1, np.float64(0.1), nnp.asarray(np.float32(0.1)), optim.linear_schedule(0.1, 0.0, 10)):
        optimizer = row.make(rate)
        params = {"w": nnp.asarray(np.array([1.0, -2.0, 3.0]), dtype=dtype)}
        state = first = optimizer.init(params)
        for g in gradients(2):
            updates, state = optimizer.update({"w": nnp.asarray(g, dtype=dtype)}, state, params)
            params = optim.apply_updates(params, updates)
            assert str(updates["w"].dtype) == str(params["w"].dtype) == dtype
        assert nnc.tree.structure(state) == nnc.tree.structure(first)
        assert [x.spec for x in nnc.tree.leaves(state)] == [x.spec for x in nnc.tree.leaves(first)]
        assert not any(x.weak for x in nnc.tree.leaves(state))


@every_optimizer
def test_16_bit_parameters_follow_those_of_64_bits_to_their_precision(row: Row) -> None:
    optimizer = row.make(0.01)
    p = np.array([1.0, -2.0, 3.0])
    wide, narrow = nnp.asarray(p), nnp.asarray(p, dtype="bfloat16")
    wide_state, narrow_state = optimizer.init(wide), optimizer.init(narrow)
    for g in gradients(5):
        g16 = nnp.asarray(g, dtype="bfloat16")
        updates, narrow_state = optimizer.update(g16, narrow_state, narrow)
        narrow = optim.apply_updates(narrow, updates)
        updates, wide_state = optimizer.update(nnp.asarray(as_numpy(g16)), wide_state, wide)
        wide = optim.apply_updates(wide, updates)
    assert np.allclose(as_numpy(narrow), wide, rtol=0.03, atol=0.01)


@every_optimizer
def test_it_minimises_a_quadratic(row: Row) -> None:
    scales, start = nnp.asarray([1.0, 3.0]), nnp.asarray([2.0, -1.5])
    optimizer = row.make(optim.cosine_decay_schedule(row.rate, 300))

    def loss(p: Any) -> Any:
        return nnp.sum(scales * p * p)

    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any) -> Any:
        updates, state = optimizer.update(nnc.grad(loss)(p), state, p)
        return optim.apply_updates(p, updates), state

    p, state = start, optimizer.init(start)
    for _ in range(300):
        p, state = step(p, state)
    assert float(loss(p)) < 1e-2 * float(loss(start))


@every_optimizer
def test_a_compiled_step_equals_the_eager_one_and_is_traced_once(row: Row) -> None:
    optimizer = row.make(optim.linear_schedule(0.1, 0.01, 4))
    params = {"w": nnp.asarray(np.ones(3)), "none": None, "layers": [nnp.ones(2), (nnp.ones(1),)]}

    def step(grads: Any, state: Any, params: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    compiled = nnc.compile(step, max_traces=1)
    eager = fast = (params, optimizer.init(params))
    for i in range(4):
        grads = nnc.tree.map(lambda p, i=i: p * (i + 1) - 0.5, params)
        eager, fast = step(grads, eager[1], eager[0]), compiled(grads, fast[1], fast[0])
    for x, y in zip(nnc.tree.leaves(eager), nnc.tree.leaves(fast), strict=True):
        assert np.allclose(x, y, rtol=1e-5)


@every_optimizer
def test_leaves_that_are_no_floats_stay_as_they_are(row: Row) -> None:
    counter = np.array([3, 4])
    params = {
        "w": nnp.ones(2), "steps": counter, "on": np.array(True), "act": "relu", "f": np.tanh, "none": None,
        "model": Model(nnp.ones(3), extra={"b": nnp.zeros(1)}),
    }  # fmt: skip
    grads = nnc.tree.map(lambda x: nnp.ones_like(x) if getattr(x, "dtype", None) == np.float32 else x, params)
    optimizer = row.make(0.1)
    state = optimizer.init(params)
    for _ in range(2):
        updates, state = optimizer.update(grads, state, params)
        new = optim.apply_updates(params, updates)
    assert new["steps"] is counter and new["act"] == "relu" and new["f"] is np.tanh and new["none"] is None
    assert new["on"].dtype == np.bool_
    assert isinstance(new["model"], Model) and new["model"].activation is np.tanh and new["model"].depth == 3
    assert float(new["w"][0]) < 1.0 and float(new["model"].w[0]) < 1.0
    assert not any(x is counter for x in nnc.tree.leaves(state))


def test_gradients_of_a_mixed_tree_move_its_floats_alone() -> None:
    params = {"w": nnp.ones(2), "steps": np.array([3]), "act": "tanh", "f": nnp.tanh, "none": None}
    optimizer = optim.adam(0.1)

    def loss(params: Any) -> Any:
        return nnp.sum(params["f"](params["w"])) * params["steps"][0]

    @nnc.compile(max_traces=1, donate_argnums=(0, 1))
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(nnc.grad(loss)(params), state, params)
        return optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(3):
        params, state = step(params, state)
    assert np.allclose(params["w"], 0.7, atol=1e-3) and int(params["steps"][0]) == 3 and params["act"] == "tanh"
    assert params["f"] is nnp.tanh and params["none"] is None


def test_hyperparameters_may_be_arrays() -> None:
    p, arrays = np.array([1.0, -2.0]), {name: np.float64(x) for name, x in {"b1": 0.8, "b2": 0.9, "eps": 1e-3}.items()}
    results = []
    for optimizer in (optim.adam(0.1, b1=0.8, b2=0.9, eps=1e-3), optim.adam(nnp.asarray(np.float64(0.1)), **arrays)):
        state = optimizer.init(p)
        for g in gradients(3):
            updates, state = optimizer.update(g[:2], state, p)
        results.append(updates)
    assert np.allclose(results[0], results[1], rtol=1e-12)


def test_python_floats_are_parameters_too() -> None:
    optimizer = optim.sgd(0.5, momentum=0.9)
    updates, _ = optimizer.update({"x": 2.0}, optimizer.init({"x": 1.0}))
    x = optim.apply_updates({"x": 1.0}, updates)["x"]
    assert float(x) == 0.0 and x.dtype == np.float32


def test_optimizers_run_under_vmap() -> None:
    optimizer = optim.adam(0.1)
    params, grads = nnp.asarray(np.ones((4, 2))), nnp.asarray(np.arange(8.0).reshape(4, 2))

    def step(p: Any, g: Any) -> Any:
        return optim.apply_updates(p, optimizer.update(g, optimizer.init(p), p)[0])

    assert np.allclose(nnc.vmap(step)(params, grads), [step(p, g) for p, g in zip(params, grads, strict=True)])


def test_a_step_can_be_differentiated_by_its_rate() -> None:
    def after(rate: Any) -> Any:
        optimizer = optim.sgd(rate, momentum=0.9)
        p = nnp.asarray(np.array([1.0, 2.0]))
        state = optimizer.init(p)
        for _ in range(3):
            updates, state = optimizer.update(2 * p, state, p)
            p = optim.apply_updates(p, updates)
        return nnp.sum(p)

    h = 1e-6
    slope = (float(after(0.1 + h)) - float(after(0.1 - h))) / (2 * h)
    assert abs(float(nnc.grad(after)(np.float64(0.1))) - slope) < 1e-6


# -- details -----------------------------------------------------------------------------------------------------------


def test_moments_of_16_bit_parameters_are_float32_so_that_they_go_on_moving() -> None:
    params = nnp.ones(2, dtype="bfloat16")
    optimizer = optim.adam(0.1)
    moments = optimizer.init(params)[0]
    assert moments.mu.dtype == moments.nu.dtype == np.float32
    assert str(optim.adam(0.1, mu_dtype="bfloat16").init(params)[0].mu.dtype) == "bfloat16"


def test_updates_within_the_norm_are_not_changed_in_any_bit() -> None:
    g = {"a": nnp.asarray(np.random.default_rng(0).normal(size=5)), "b": nnp.asarray([0.1])}
    transformation = optim.clip_by_global_norm(100.0)
    updates, _ = transformation.update(g, transformation.init(g))
    assert all(np.array_equal(x, y) for x, y in zip(nnc.tree.leaves(g), nnc.tree.leaves(updates), strict=True))


def test_the_norm_of_16_bit_leaves_does_not_overflow() -> None:
    assert np.isclose(float(optim.global_norm({"a": nnp.full((4,), 300.0, dtype="float16"), "b": "text"})), 600.0)


def test_the_norm_of_zeros_and_of_nothing_is_zero() -> None:
    assert float(optim.global_norm({"a": nnp.zeros(3)})) == 0.0 == float(optim.global_norm({}))
    transformation = optim.clip_by_global_norm(1.0)
    assert np.array_equal(transformation.update(nnp.zeros(2), transformation.init(nnp.zeros(2)))[0], [0, 0])


def test_the_global_norm_counts_complex_magnitudes() -> None:
    assert float(optim.global_norm([nnp.asarray(np.array([3 + 4j])), nnp.asarray([12.0])])) == 13.0


@pytest.mark.parametrize(
    "mask",
    [
        {"w": True, "b": {"x": False, "y": False}, "name": False},
        {"w": np.True_, "b": False, "name": True},
        lambda params: nnc.tree.map(lambda p: getattr(p, "ndim", 0) > 0, params),
    ],
)
def test_only_masked_in_weights_decay(mask: Any) -> None:
    params = {"w": nnp.ones(2), "b": {"x": nnp.ones(()), "y": nnp.ones(())}, "name": "a"}
    zeros = nnc.tree.map(lambda p: p if isinstance(p, str) else nnp.zeros_like(p), params)
    optimizer = optim.adamw(0.1, weight_decay=0.5, mask=mask)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    assert np.allclose(updates["w"], -0.05) and float(updates["b"]["x"]) == 0 == float(updates["b"]["y"])


def test_a_mask_of_bools_fits_a_dataclass() -> None:
    params = Model(nnp.ones(2), extra=nnp.ones(()))
    optimizer = optim.adamw(0.1, weight_decay=0.5, mask=lambda p: nnc.tree.map(lambda x: x.ndim > 0, p))
    updates, _ = optimizer.update(nnc.tree.map(nnp.zeros_like, params), optimizer.init(params), params)
    assert np.allclose(updates.w, -0.05) and float(updates.extra) == 0


def test_the_trust_ratio_leaves_zero_parameters_and_zero_updates_alone() -> None:
    transformation = optim.scale_by_trust_ratio()
    params, updates = [nnp.zeros(2), nnp.ones(2)], [nnp.ones(2), nnp.zeros(2)]
    scaled, _ = transformation.update(updates, transformation.init(params), params)
    assert np.array_equal(scaled[0], [1, 1]) and np.array_equal(scaled[1], [0, 0])


def test_complex_parameters_are_divided_by_their_magnitude() -> None:
    optimizer = optim.adam(1.0)
    g = nnp.asarray(np.array([3 + 4j, -2j]))
    updates, state = optimizer.update(g, optimizer.init(g), g)
    assert updates.dtype == np.complex128 and state[0].nu.dtype == np.float64
    assert np.allclose(updates, -np.array([0.6 + 0.8j, -1j]))


def test_scale_by_learning_rate_can_ascend() -> None:
    transformation = optim.scale_by_learning_rate(0.5, flip_sign=False)
    assert float(transformation.update(nnp.ones(()), transformation.init(0.0))[0]) == 0.5


# -- the least squares of libnnc ---------------------------------------------------------------------------------------

A, BIAS = np.array([[10.0, 1.0], [3.0, 5.0]], np.float32), np.array([1.0, -1.0], np.float32)


@pytest.mark.parametrize(
    ("optimizer", "first", "second"),
    [
        (
            optim.sgd(
                optim.piecewise_constant_schedule(0.001, {250: 0.1, 500: 0.1, 750: 0.1}),
                momentum=0.9, dampening=0.9, weight_decay=0.995,
            ),
            1e-3, 1e-1,
        ),
        (optim.adam(0.002, 0.9, 0.98, 1e-9), 1e-1, 1e-1),
        (optim.adamw(0.002, 0.9, 0.98, 1e-9, weight_decay=0.0), 1e-1, 1e-1),
        (optim.rmsprop(0.001, 0.9, momentum=0.9), 1e-1, 1e-1),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop"],
)  # fmt: skip
def test_least_squares_are_solved_in_a_thousand_steps(optimizer: Any, first: float, second: float) -> None:
    def loss(w: Any) -> Any:
        return nnp.sum((nnp.asarray(A) @ w.T + BIAS) ** 2)

    @nnc.compile(max_traces=1)
    def step(w: Any, state: Any) -> Any:
        updates, state = optimizer.update(nnc.grad(loss)(w), state, w)
        return optim.apply_updates(w, updates), state

    w = nnp.asarray(np.random.default_rng(3).uniform(-0.5, 0.5, (2, 2)).astype(np.float32))
    state = optimizer.init(w)
    for _ in range(1000):
        w, state = step(w, state)
    out = A @ np.asarray(w).T
    assert np.allclose(out[0], -BIAS, atol=first) and np.allclose(out[1], -BIAS, atol=second)


def test_a_variance_that_rounds_below_zero_counts_as_zero() -> None:
    for correct in (False, True):
        transformation = optim.scale_by_stddev(decay=0.9, eps=1e-8, bias_correction=correct)
        gradient = nnp.asarray(np.array([1e3, 0.1, 33.3, 7e4], np.float32))
        state = transformation.init(gradient)
        for _ in range(200):  # equal gradients: mean of squares and square of mean differ by their rounding alone
            update, state = transformation.update(gradient, state)
            assert np.isfinite(np.asarray(update)).all()


def test_defaults_are_those_that_optax_names() -> None:
    x = nnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    explicit = optim.orthogonalize_via_newton_schulz(x, (3.4445, -4.7750, 2.0315), 5, 1e-8)
    assert np.array_equal(optim.orthogonalize_via_newton_schulz(x), explicit)
    assert float(optim.DynamicLossScale().loss_scale) == 2.0**15
    path = lambda link: optim.chain(link, optim.scale(-0.1))
    p, ways = nnp.ones(3), [path(optim.scale_by_lbfgs()), path(optim.scale_by_lbfgs(10, True))]
    states = [way.init(p) for way in ways]
    for g in np.random.default_rng(1).normal(size=(4, 3)):
        made = [way.update(nnp.asarray(g), state, p) for way, state in zip(ways, states, strict=True)]
        states = [state for _, state in made]
        assert np.array_equal(made[0][0], made[1][0])
