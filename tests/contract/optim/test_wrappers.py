"""Groups, masks, accumulation, averages, loss scales, hyperparameters in the state, and L-BFGS, beyond the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError, TreeError
from tests.unit.optim.test_optimizers import Model

# -- parts -------------------------------------------------------------------------------------------------------------


def test_the_inner_optimizer_sees_the_chosen_leaves_alone() -> None:
    params = {"w": nnp.ones((2, 2)), "b": nnp.ones(2), "name": "x"}
    optimizer = optim.masked(optim.adam(0.1), lambda p: nnc.tree.map(lambda x: getattr(x, "ndim", 0) > 1, p))
    state = optimizer.init(params)
    assert [x.shape for x in nnc.tree.leaves(state.inner_state[0].mu) if hasattr(x, "shape")] == [(2, 2)]
    updates, _ = optimizer.update(params, state)
    assert np.allclose(updates["w"], -0.1) and np.array_equal(updates["b"], [1, 1]) and updates["name"] == "x"


def test_groups_have_optimizers_of_their_own_and_fit_dataclasses() -> None:
    params = Model(nnp.ones(2), extra={"bias": nnp.ones(1)})
    groups = {"slow": optim.sgd(0.1), "fast": optim.sgd(1.0)}
    optimizer = optim.multi_transform(groups, lambda p: nnc.tree.map(lambda x: "fast" if x.size == 1 else "slow", p))
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert np.allclose(updates.w, -0.1) and np.allclose(updates.extra["bias"], -1) and updates.activation is np.tanh


def test_masks_and_labels_may_be_modules_that_can_be_called() -> None:
    model = nnc.nn.MLP(2, 1, width=3, depth=1, key=nnc.random.key(0))
    mask = nnc.nn.trainable(model, freeze="layers.0")
    labels = nnc.tree.map(lambda on: "on" if on else "off", mask)
    for optimizer in (
        optim.chain(optim.masked(optim.sgd(1.0), mask), optim.freeze(nnc.tree.map(lambda on: not on, mask))),
        optim.multi_transform({"on": optim.sgd(1.0), "off": optim.set_to_zero()}, labels),
    ):
        updates, _ = optimizer.update(model, optimizer.init(model), model)
        assert not np.any(updates.layers[0].weight)
        assert np.array_equal(updates.layers[1].weight, -np.asarray(model.layers[1].weight))


def test_labels_without_a_transformation_are_named() -> None:
    params = {"w": nnp.ones(1), "b": nnp.ones(1)}
    with pytest.raises(TreeError, match="the label 'y' has no transformation"):
        optim.multi_transform({"x": optim.sgd(0.1)}, {"w": "x", "b": "y"}).init(params)
    with pytest.raises(TreeError, match=r"\['b'\]"):
        optim.multi_transform({"x": optim.sgd(0.1)}, {"w": "x"}).init(params)
    with pytest.raises(ArgumentTypeError, match="transforms is a list"):
        optim.multi_transform([optim.sgd(0.1)], "x")
    with pytest.raises(ArgumentTypeError, match=r"transforms\['x'\] is"):
        optim.multi_transform({"x": optim.sgd}, "x")
    with pytest.raises(ArgumentTypeError, match="inner is"):
        optim.masked(optim.sgd, True)


# -- over several steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [True, False])
def test_accumulated_gradients_make_the_step_of_the_whole_batch(mean: bool) -> None:
    grads = [nnp.asarray(g) for g in np.random.default_rng(0).normal(size=(6, 3))]
    inner = optim.adamw(optim.linear_schedule(0.1, 0.0, 4), weight_decay=0.1)
    optimizer = optim.MultiSteps(inner, 3, use_grad_mean=mean)
    p = q = nnp.asarray(np.ones(3))
    state, whole = optimizer.init(p), inner.init(q)
    step = nnc.compile(optimizer.update, max_traces=1)
    assert not optimizer.has_updated(state)
    for i, g in enumerate(grads):
        updates, state = step(g, state, p)
        p = optim.apply_updates(p, updates)
        assert bool(optimizer.has_updated(state)) == (i % 3 == 2)
    for i in (0, 3):
        total = grads[i] + grads[i + 1] + grads[i + 2]
        updates, whole = inner.update(total / 3 if mean else total, whole, q)
        q = optim.apply_updates(q, updates)
    assert np.allclose(p, q, rtol=1e-12) and int(state.gradient_step) == 2


def test_the_number_of_accumulated_gradients_may_follow_a_schedule() -> None:
    optimizer = optim.MultiSteps(optim.sgd(1.0), lambda step: nnp.where(step < 1, 1, 2))
    state, moved = optimizer.init(nnp.zeros(1)), []
    for _ in range(5):
        updates, state = optimizer.update(nnp.ones(1), state)
        moved.append(float(updates[0]))
    assert moved == [-1, 0, -1, 0, -1]


def test_lookahead_steps_back_every_few_steps() -> None:
    optimizer = optim.lookahead(optim.sgd(0.1), sync_period=2, slow_step_size=0.5)
    params = optim.LookaheadParams.init_synced({"w": nnp.asarray(np.ones(1))})
    state, fast, slow = optimizer.init(params), 1.0, 1.0
    for t in range(1, 6):
        updates, state = optimizer.update(params.fast, state, params)
        params = optim.apply_updates(params, updates)
        fast -= 0.1 * fast
        if t % 2 == 0:
            slow = fast = slow + 0.5 * (fast - slow)
        assert np.isclose(float(params.fast["w"][0]), fast) and np.isclose(float(params.slow["w"][0]), slow)
    with pytest.raises(ArgumentTypeError, match="init_synced"):
        optimizer.update({"w": nnp.ones(1)}, state, {"w": nnp.ones(1)})


def test_lookahead_can_start_its_optimizer_anew() -> None:
    optimizer = optim.lookahead(optim.sgd(0.1, momentum=0.9), 1, 1.0, reset_state=True)
    params = optim.LookaheadParams.init_synced(nnp.ones(1))
    _, state = optimizer.update(nnp.ones(1), optimizer.init(params), params)
    assert float(state.fast_state[0].trace[0]) == 0.0


def test_averaged_weights_follow_the_weights() -> None:
    average = optim.ema(0.5, debias=False)
    state = average.init({"w": nnp.zeros(1)})
    for x in (4.0, 8.0):
        mean, state = average.update({"w": nnp.asarray([x])}, state)
    assert float(mean["w"][0]) == 5.0
    assert str(optim.ema(0.5, accumulator_dtype="float64").init(nnp.ones(1)).ema.dtype) == "float64"


# -- precision ---------------------------------------------------------------------------------------------------------


def test_small_gradients_survive_float16_by_scaling_the_loss() -> None:
    x = nnp.asarray(np.float16(1e-4))

    def loss(p: Any) -> Any:
        return (p * x) * nnp.asarray(np.float16(2e-4))  # its gradient, 2e-8, is below the smallest float16

    p = nnp.asarray(np.float16(1.0))
    scaling = optim.StaticLossScale(2.0**14)
    assert float(nnc.grad(loss)(p)) == 0.0
    g = scaling.unscale(nnc.grad(lambda p: scaling.scale(loss(p)))(p))
    assert g.dtype == np.float32 and np.isclose(float(g), 2e-8, rtol=0.01)


def test_a_dynamic_scale_in_a_compiled_step_leaves_out_overflows() -> None:
    optimizer = optim.sgd(0.125, momentum=0.5)

    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any, scaling: Any, x: Any) -> Any:
        grads = nnc.grad(lambda p: scaling.scale(nnp.sum(p * x)))(p)
        grads = scaling.unscale(grads)
        finite = optim.all_finite(grads)
        updates, after = optimizer.update(nnc.tree.map(lambda g, p: g.astype(p.dtype), grads, p), state, p)
        p, state = optim.select_tree(finite, (optim.apply_updates(p, updates), after), (p, state))
        return p, state, scaling.adjust(finite)

    p = nnp.ones(2, dtype="float16")
    state, scaling, sizes = optimizer.init(p), optim.DynamicLossScale(2.0**16, period=2), []
    for _ in range(5):
        p, state, scaling = step(p, state, scaling, nnp.ones(2, dtype="float16"))
        sizes.append(float(scaling.loss_scale))
    assert sizes == [2.0**15, 2.0**15, 2.0**16, 2.0**15, 2.0**15]
    assert np.allclose(p, 1 - 0.125 * (1 + 1.5 + 1.75)) and p.dtype == np.float16


def test_a_dynamic_scale_stays_between_its_bounds() -> None:
    scaling = optim.DynamicLossScale(2.0, min_loss_scale=1.0, period=1)
    for _ in range(3):
        scaling = scaling.adjust(False)
    assert float(scaling.loss_scale) == 1.0
    scaling = optim.DynamicLossScale(3e38, period=1).adjust(True)
    assert float(scaling.loss_scale) == np.float32(3e38)


def test_steps_that_are_not_finite_are_counted_and_at_last_made() -> None:
    optimizer = optim.apply_if_finite(optim.sgd(1.0, momentum=0.5), 2)
    state, bad = optimizer.init(nnp.ones(1)), nnp.asarray([np.inf])
    for n in (1, 2):
        updates, state = optimizer.update(bad, state)
        assert float(updates[0]) == 0 and int(state.notfinite_count) == n and not bool(state.last_finite)
    updates, state = optimizer.update(bad, state)
    assert not np.isfinite(updates[0]) and int(state.total_notfinite) == 3


# -- hyperparameters in the state --------------------------------------------------------------------------------------


def test_injected_hyperparameters_change_without_a_new_trace() -> None:
    optimizer = optim.inject_hyperparams(optim.adamw)(
        learning_rate=optim.linear_schedule(1.0, 0.0, 10), weight_decay=0.5
    )
    step = nnc.compile(optimizer.update, max_traces=1)
    p = nnp.ones(1)
    updates, state = step(nnp.zeros(1), optimizer.init(p), p)
    assert float(updates[0]) == -0.5 and float(state.hyperparams["learning_rate"]) == 1.0
    state.hyperparams["weight_decay"] = nnp.asarray(0.25)
    updates, state = step(nnp.zeros(1), state, p)
    assert np.isclose(float(updates[0]), -0.25 * 0.9) and np.isclose(float(state.hyperparams["learning_rate"]), 0.9)


def test_injection_names_its_arguments() -> None:
    with pytest.raises(ArgumentError, match="rate is no argument"):
        optim.inject_hyperparams(optim.sgd, "rate")
    with pytest.raises(ArgumentTypeError, match="write learning_rate="):
        optim.inject_hyperparams(optim.sgd)(lr=0.1)
    masked = optim.inject_hyperparams(optim.adamw, static_args="mask")(0.1, mask=lambda p: False, weight_decay=0.5)
    assert float(masked.update(nnp.zeros(1), masked.init(nnp.ones(1)), nnp.ones(1))[0][0]) == 0


# -- matrices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_newton_and_schulz_flatten_the_singular_values(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    left, _, right = np.linalg.svd(x, full_matrices=False)
    y = np.asarray(optim.orthogonalize_via_newton_schulz(nnp.asarray(x)))
    spread = np.diag(left.T @ y @ right.T)
    assert np.all((spread > 0.6) & (spread < 1.3)) and np.allclose(left @ np.diag(spread) @ right, y)


def test_muon_gives_matrices_orthogonal_steps_of_their_shape() -> None:
    params = {"w": nnp.asarray(np.random.default_rng(0).normal(size=(2, 8))), "b": nnp.ones(3)}
    steps = {}
    for axis in (0, 1):
        optimizer = optim.muon(0.1, output_axis=axis)
        steps[axis], _ = optimizer.update(params, optimizer.init(params), params)
    assert np.allclose(steps[1]["w"], 2 * np.asarray(steps[0]["w"])) and np.allclose(steps[0]["b"], steps[1]["b"])
    with pytest.raises(ArgumentError, match="coefficients"):
        optim.muon(0.1, ns_coeffs=(1.0, 2.0))


def test_factored_moments_are_exact_for_squares_that_are_an_outer_product() -> None:
    g = np.outer([1.0, 2.0, 3.0], [1.0, 0.5, 0.25, 4.0])
    optimizer = optim.scale_by_factored_rms(min_dim_size_to_factor=2)
    state = optimizer.init(nnp.asarray(g))
    assert state.v_row.shape == (3,) and state.v_col.shape == (4,) and state.v.shape == (1,)
    updates, _ = optimizer.update(nnp.asarray(g), state, nnp.asarray(g))
    assert np.allclose(updates, 1.0)


# -- L-BFGS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lbfgs_minimises_rosenbrock_in_a_compiled_loop(dtype: str) -> None:
    def loss(p: Any) -> Any:
        return nnp.sum(100 * (p["x"][1:] - p["x"][:-1] ** 2) ** 2 + (1 - p["x"][:-1]) ** 2) + (p["y"] - 3) ** 2

    optimizer = optim.lbfgs()

    @nnc.compile(max_traces=1)
    def minimise(p: Any) -> Any:
        def body(carry: Any) -> Any:
            p, state, count = carry
            value, grad = optim.value_and_grad_from_state(loss)(p, state=state)
            updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=loss)
            return optim.apply_updates(p, updates), state, count + 1

        return nnc.while_loop(
            lambda c: (c[2] < 100) & ((c[2] == 0) | (optim.global_norm(c[1][-1].grad) > 1e-4)), body,
            (p, optimizer.init(p), 0),
        )  # fmt: skip

    start = {
        "x": nnp.asarray(np.array([-1.2, 1.0, 0.3]), dtype=dtype),
        "y": nnp.asarray(0.0, dtype=dtype),
        "name": None,
    }
    p, state, count = minimise(start)
    assert np.allclose(p["x"], 1.0, atol=1e-3) and np.isclose(float(p["y"]), 3.0, atol=1e-3)
    assert 10 < int(count) < 60 and str(p["x"].dtype) == dtype and float(state[-1].value) < 1e-6


def test_the_line_search_meets_both_wolfe_conditions() -> None:
    def loss(p: Any) -> Any:
        return nnp.sum(nnp.cosh(p) - 0.5 * nnp.sin(3 * p))

    search = optim.scale_by_zoom_linesearch(20)
    for seed in range(4):
        p = nnp.asarray(np.random.default_rng(seed).normal(size=3) * 3)
        value, g = nnc.value_and_grad(loss)(p)
        for length in (0.01, 1.0, 20.0):
            u = -length * g
            updates, state = search.update(u, search.init(p), p, value=value, grad=g, value_fn=loss)
            after, slope = nnc.value_and_grad(loss)(p + updates)
            first, last, step = float(nnp.sum(u * g)), float(nnp.sum(u * slope)), float(state.learning_rate)
            assert float(after) <= float(value) + 1e-4 * step * first and abs(last) <= 0.9 * abs(first)
            assert np.isclose(float(state.value), float(after)) and np.allclose(state.grad, slope)


def test_a_line_search_that_cannot_leave_stays() -> None:
    def loss(p: Any) -> Any:
        return nnp.sum(nnp.where(p == 1.0, 0.0, np.nan * p))

    search, p = optim.scale_by_zoom_linesearch(5), nnp.ones(1)
    updates, state = search.update(-p, search.init(p), p, value=nnp.asarray(0.0), grad=p, value_fn=loss)
    assert float(updates[0]) == 0.0 and float(state.learning_rate) == 0.0


def test_a_largest_step_is_kept() -> None:
    search, p = optim.scale_by_zoom_linesearch(10, max_learning_rate=1.5), nnp.zeros(1)
    loss = lambda p: -nnp.sum(p)
    updates, _ = search.update(nnp.ones(1), search.init(p), p, value=loss(p), grad=-nnp.ones(1), value_fn=loss)
    assert float(updates[0]) == 1.5


def test_lbfgs_names_the_needs_of_its_line_search() -> None:
    optimizer, p = optim.lbfgs(), nnp.ones(2)
    with pytest.raises(ArgumentTypeError, match=r"value=value, grad=grads, value_fn=loss"):
        optimizer.update(p, optimizer.init(p), p)
    with pytest.raises(ArgumentTypeError, match="write memory_size="):
        optim.lbfgs(history_size=5)
    with pytest.raises(TreeError, match="holds no line search"):
        optim.value_and_grad_from_state(nnp.sum)(p, state=optim.sgd(0.1).init(p))


def test_other_arguments_reach_the_function_that_is_minimised() -> None:
    def loss(p: Any, target: Any) -> Any:
        return nnp.sum((p - target) ** 2)

    optimizer, p, target = optim.lbfgs(), nnp.zeros(2), nnp.asarray([1.0, 2.0])
    state = optimizer.init(p)
    for _ in range(3):
        value, g = nnc.value_and_grad(loss)(p, target)
        updates, state = optimizer.update(g, state, p, value=value, grad=g, value_fn=loss, target=target)
        p = optim.apply_updates(p, updates)
    assert np.allclose(p, target, atol=1e-5)


@pytest.mark.parametrize(
    "clip", ["clip", "clip_by_norm", "clip_by_block_rms", "clip_by_global_norm", "adaptive_grad_clip"]
)
def test_an_infinite_bound_limits_nothing(clip: str) -> None:
    params = updates = {"a": nnp.asarray([3.0, -4e30, 0.0]), "b": nnp.zeros(2)}
    for bound in (float("inf"), nnp.asarray(np.inf)):
        transformation = getattr(nnc.optim, clip)(bound)
        got, _ = transformation.update(updates, transformation.init(params), params)
        assert nnc.tree.leaves(nnc.tree.map(lambda a, b: bool((a == b).all()), got, updates)) == [True, True]
    with pytest.raises(ArgumentError, match="nan"):
        getattr(nnc.optim, clip)(float("nan"))
