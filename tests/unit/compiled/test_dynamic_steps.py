"""The dynamic graph from step to step: optimizers, results and programs found again, compiled functions as one node."""

from __future__ import annotations

import gc
import importlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.compiled.dynamic_steps import EQUAL_RUNS, Repeated
from nnc.errors import ArgumentError, ArgumentTypeError
from nnc.graph import register, verify
from nnc.graph.rules import Rules


@pytest.fixture
def g() -> nnc.DynamicGraph:
    return nnc.DynamicGraph()


# -- optimizers --------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.05, momentum=0.9),
    "adam": lambda: optim.adam(0.1),
    "adamw": lambda: optim.adamw(0.1, weight_decay=0.01),
    "clipped": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_minimize_equals_backward_and_apply_equals_the_functional_way(name: str) -> None:
    a, b = np.array([[10.0, 1], [3, 5]]), np.array([1.0, -1])
    fun = lambda w, c: nnp.mean((w @ a - b) ** 2) + c * c
    start = (np.ones((2, 2)), np.float64(0.5))

    optimizer = OPTIMIZERS[name]()
    params = [nnc.asarray(x) for x in start]
    state = optimizer.init(params)
    for _ in range(5):
        grads = list(nnc.grad(fun, (0, 1))(*params))
        updates, state = optimizer.update(grads, state, params)
        params = optim.apply_updates(params, updates)

    results = []
    for way in ("minimize", "apart"):
        g, optimizer = nnc.DynamicGraph(), OPTIMIZERS[name]()
        w, c = map(g.variable, start)
        for _ in range(5):
            loss = fun(w, c)
            if way == "minimize":
                g.minimize(loss, optimizer)
            else:
                g.backward(loss)
                g.apply_gradients(optimizer)
            assert w.grad is None and c.grad is None
        results.append((w.array, c.array))
    for w_found, c_found in results:
        np.testing.assert_allclose(w_found, params[0], rtol=1e-9)
        np.testing.assert_allclose(c_found, params[1], rtol=1e-9)


def test_least_squares_is_solved(g: nnc.DynamicGraph) -> None:
    a, bias = np.array([[10.0, 1], [3, 5]]), np.array([1.0, -1])
    w = g.variable(np.zeros((2, 2)))
    optimizer = optim.adam(0.05)
    for _ in range(600):
        g.minimize(nnp.sum((a @ w + bias) ** 2), optimizer)
    np.testing.assert_allclose(a @ np.asarray(w.array) + bias, np.zeros((2, 2)), atol=1e-2)


def test_one_optimizer_moves_two_sets_of_variables_apart(g: nnc.DynamicGraph) -> None:
    optimizer = optim.sgd(0.1, momentum=0.9)
    x, y = g.variable(1.0), g.variable(1.0)
    for _ in range(3):
        g.minimize(x * x, optimizer)
        g.minimize(y * y, optimizer)
    assert float(x) == float(y) < 1


def test_a_variable_without_gradient_gets_zeros_and_a_new_one_is_refused(g: nnc.DynamicGraph) -> None:
    x, y = g.variable(1.0), g.variable(1.0)
    optimizer = optim.sgd(0.1)
    g.minimize([x * x, y * y], optimizer)
    g.minimize(x * x, optimizer)
    assert float(y) == pytest.approx(0.8) and float(x) == pytest.approx(0.64)
    z = g.variable(1.0)
    with pytest.raises(ArgumentError, match="other variables"):
        g.minimize(x * z, optimizer)


def test_only_the_inputs_given_are_moved(g: nnc.DynamicGraph) -> None:
    x, y = g.variable(1.0), g.variable(1.0)
    g.minimize(x * y, optim.sgd(0.5), inputs=[x, x])
    assert float(x) == 0.5 and float(y) == 1 and y.grad is None


def test_minimize_leaves_the_gradients_of_other_variables(g: nnc.DynamicGraph) -> None:
    x, y = g.variable(1.0), g.variable(1.0)
    g.backward(y * y)
    g.minimize(x * x, optim.sgd(0.1))
    assert float(y) == 1 and float(y.grad) == 2


def test_there_must_be_gradients_to_apply(g: nnc.DynamicGraph) -> None:
    with pytest.raises(ArgumentError, match="no variable has a gradient"):
        g.apply_gradients(optim.sgd(0.1))


def test_a_model_of_variables_trains_as_the_compiled_step_does(g: nnc.DynamicGraph) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.random((8, 1, 6, 6), np.float32), rng.integers(0, 3, 8)
    keys = nnc.random.split(nnc.random.key(0), 2)
    model = {"conv": nn.Conv(1, 4, 3, key=keys[0], padding="SAME"), "head": nn.Linear(36, 3, key=keys[1])}

    def loss_of(model: Any) -> Any:
        x = nn.max_pool(nn.relu(model["conv"](images)), 2)
        return nnp.mean(nn.softmax_cross_entropy(model["head"](nnp.reshape(x, (8, -1))), labels))

    optimizer = optim.adamw(1e-2, weight_decay=1e-2)

    @nnc.compile
    def step(model: Any, state: Any) -> Any:
        loss, grads = nnc.value_and_grad(loss_of)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss

    variables = nnc.tree.map(g.variable, model)
    compiled, state = model, optimizer.init(model)
    for _ in range(4):
        compiled, state, loss = step(compiled, state)
        eager_loss = loss_of(variables)
        g.minimize(eager_loss, optimizer)
        assert float(eager_loss) == pytest.approx(float(loss), rel=1e-5)
    del eager_loss
    for x, y in zip(nnc.tree.leaves(variables), nnc.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    assert g.bookkeeping() == (0, 4)


def test_the_digits_are_learned_alike_eagerly_and_compiled() -> None:
    for name in ("sklearn", "PIL", "threadpoolctl"):
        pytest.importorskip(name)
    dynamic = importlib.import_module("benchmarks.dynamic")
    digits = dynamic.read_digits(0)
    model = dynamic.Network(nnc.random.key(0))
    steps = dynamic.compiled_step(model), dynamic.dynamic_step(model)
    for images, labels in dynamic.batches(digits, 32, 4):
        compiled, eager = (step(images, labels) for step in steps)
        assert eager == pytest.approx(compiled, rel=1e-5)


def test_a_model_of_variables_is_saved_as_one_of_arrays(g: nnc.DynamicGraph, tmp_path: Path) -> None:
    model = nn.Linear(3, 2, key=nnc.random.key(0))
    path = tmp_path / "model.safetensors"
    nnc.io.save(path, nnc.tree.map(g.variable, model))
    np.testing.assert_array_equal(nnc.io.load(path, like=model).weight, model.weight)


# -- memoisation -------------------------------------------------------------------------------------------------------


class Counter:
    """Counts how often the commands that it made ran."""

    runs = 0

    def make(self, name: str, **attributes: Any) -> Any:
        def reference(x: Any) -> Any:
            self.runs += 1
            return x + 1

        return register(name, Rules(infer=lambda x: x, reference=reference), **attributes)


@pytest.mark.usefixtures("own_registries")
def test_a_repeated_pure_command_does_not_run(g: nnc.DynamicGraph) -> None:
    counter = Counter()
    command = counter.make("counted")
    x = g.variable(np.arange(100.0))
    first, second = command(x), command(x)
    assert counter.runs == 1 and g.memo_stats().hits == 1
    np.testing.assert_array_equal(first, second)
    x.set(np.arange(100.0) * 2)
    np.testing.assert_array_equal(command(x), np.arange(100.0) * 2 + 1)
    assert counter.runs == 2


@pytest.mark.usefixtures("own_registries")
def test_small_operands_are_known_by_their_contents(g: nnc.DynamicGraph) -> None:
    counter = Counter()
    command = counter.make("counted")
    command(g.variable(2.0))
    command(g.constant(2.0))
    assert counter.runs == 1
    command(g.variable(-2.0))
    command(g.variable(np.float64(2.0)))
    assert counter.runs == 3
    command(g.variable(0.0))
    command(g.variable(-0.0))
    assert counter.runs == 5


@pytest.mark.usefixtures("own_registries")
def test_effects_run_each_time(g: nnc.DynamicGraph) -> None:
    counter = Counter()
    command = counter.make("counted", effect="debug")
    x = g.variable(2.0)
    command(x), command(x)
    assert counter.runs == 2 and g.memo_stats().entries == 0


def test_random_draws_are_never_kept(g: nnc.DynamicGraph) -> None:
    key = g.constant(nnc.random.key(0))
    before = g.memo_stats().hits
    first, second = nnc.random.bits(key, (50,)), nnc.random.bits(key, (50,))
    np.testing.assert_array_equal(first, second)
    kept = [entry.results for entry in g.memo._entries._values.values()]
    assert all(x.shape != (50,) for results in kept for x in results)
    assert g.memo_stats().hits >= before


def test_the_memo_keeps_its_limit_and_drops_the_least_recently_used() -> None:
    g = nnc.DynamicGraph(memo_bytes=10_000)
    x = g.variable(np.ones(500))  # a result takes 4,000 bytes and some
    kept = [nnp.sin(x), nnp.cos(x)]
    nnp.sin(x)
    kept.append(nnp.exp(x))  # cos goes
    nnp.sin(x)
    stats = g.memo_stats()
    assert (stats.hits, stats.entries) == (2, 2) and stats.nbytes <= stats.limit == 10_000
    nnp.cos(x)
    assert g.memo_stats().hits == 2
    kept.append(nnp.broadcast_to(x, (4, 500)) + 1)  # 16,000 bytes: more than all
    assert g.memo_stats().nbytes <= 10_000
    none = nnc.DynamicGraph(memo_bytes=0)
    y = none.variable(np.ones(500))
    kept += [nnp.sin(y), nnp.sin(y)]
    assert none.memo_stats().hits == 0 == none.memo_stats().entries


def test_results_are_dropped_with_their_operands(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(500))
    y = nnp.sin(nnp.cos(x))
    assert g.memo_stats().entries == 2
    x.free()
    del y
    assert g.memo_stats().entries == 0 == g.memo_stats().nbytes


def test_a_long_chain_of_kept_results_goes_at_once(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(200))
    with g.no_grad():
        y = x
        for _ in range(1000):
            y = nnp.sin(y)
    assert g.memo_stats().entries == 1000
    x.free()
    del y
    assert g.memo_stats().entries == 0


def test_a_result_may_be_donated_though_it_was_found_again(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(1000, np.float32))
    first, second, third = x * 2, x * 2, g.variable(x * 2)
    negative = nnc.compile(lambda a: -a, donate_argnums=0)
    np.testing.assert_array_equal(negative(first.array), np.full(1000, -2))
    for y in (second, third, x * 2):
        np.testing.assert_array_equal(y, np.full(1000, 2))
    with pytest.raises(ArgumentTypeError, match="donated"):
        first + 1


def test_looking_at_a_result_copies_nothing(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(1000))
    y = x * 2
    assert y.array is y.array and np.shares_memory(y.array.data, (x * 2).array.data)
    hits = g.memo_stats().hits
    z = nnp.sin(x * y.array)
    w = nnp.sin(x * y.array)
    assert g.memo_stats().hits == hits + 2
    np.testing.assert_array_equal(z, w)


def test_a_variable_holds_no_view_of_memory_that_others_write_to(g: nnc.DynamicGraph) -> None:
    memory = np.ones(1000)
    view = memory.view()
    view.flags.writeable = False
    x = g.variable(view)
    nnp.sum(x)
    memory[:] = 5
    assert float(nnp.sum(x)) == 1000 and float(x[0]) == 1


def test_numbers_are_operands_like_others(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(200))
    y = x * 1.5
    hits = g.memo_stats().hits
    z = x * 1.5
    assert g.memo_stats().hits == hits + 1
    np.testing.assert_array_equal(y, z)
    assert float((x * 1.25)[0]) == 1.25 and float((x * -1.5)[0]) == -1.5


def test_the_graph_s_text_is_its_memory_report() -> None:
    g = nnc.DynamicGraph(memo_bytes="1MiB")
    x = g.variable(np.ones(1000))
    y = nnp.sin(x)
    text = repr(g)
    assert "1 operations, 2 tensors of 16000 bytes" in text and f"of {2**20} bytes" in text
    assert g.memo_stats().nbytes >= 8000 and f"1 results kept in {g.memo_stats().nbytes} of" in text
    del y


# -- programs found again ----------------------------------------------------------------------------------------------


def test_equal_backward_graphs_share_one_program(g: nnc.DynamicGraph, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "nnc"):
        for value in (1.0, 2.0, 3.0):
            x = g.variable(value)
            g.backward(nnp.sin(x) * x)
            assert float(x.grad) == pytest.approx(math.sin(value) + value * math.cos(value), rel=1e-6)
    assert sum("compiled a backward graph" in record.message for record in caplog.records) == 1
    assert len(g._programs) == 1


def test_loops_traced_anew_share_one_program(g: nnc.DynamicGraph) -> None:
    for value in (1.0, 2.0):
        x = g.variable(value)
        g.backward(nnc.fori_loop(0, 3, lambda i, c: nnp.sin(c), x))
    assert len(g._derivatives) == 1 == len(g._programs)


def test_a_repeated_function_gets_compiled_and_says_so(g: nnc.DynamicGraph, caplog: pytest.LogCaptureFixture) -> None:
    runs = []

    def fun(x: Any) -> Any:
        runs.append(type(x).__name__)
        return nnp.sum(nnp.sin(x) * x)

    with caplog.at_level(logging.DEBUG, "nnc"):
        for i in range(6):
            x = g.variable(np.arange(3.0) + i)
            y = g.evaluate(fun, x)
            assert g.bookkeeping()[0] == (3 if i < 3 else 1)
            g.backward(y)
            np.testing.assert_allclose(x.grad, np.sin(x.array) + np.asarray(x.array) * np.cos(x.array))
            del y
    assert runs == ["Variable"] * 3 + ["StagedTracer"]
    assert [r.message for r in caplog.records if "fun" in r.message] == [
        "dynamic graph: compiled fun after 3 equal runs"
    ]


def test_arrays_among_the_arguments_may_differ_between_equal_runs(g: nnc.DynamicGraph) -> None:
    traces = []

    def fun(w: Any, x: Any, n: Any) -> Any:
        traces.append(type(x).__name__)
        return nnp.sum(w * x) ** 2 * n

    w = g.variable(np.ones(3))
    for i in range(5):
        x = np.arange(3.0) + i
        y = g.evaluate(fun, w, x, float(i))
        assert float(y) == x.sum() ** 2 * i
        w.grad = None
        g.backward(y)
        np.testing.assert_allclose(w.grad, 2 * x.sum() * x * i)
    assert traces == ["Variable"] * 3 + ["StagedTracer"]


def test_the_residuals_of_a_compiled_function_are_kept_as_long_as_they_are_needed(g: nnc.DynamicGraph) -> None:
    fun = nnc.compile(lambda v: nnp.sum(nnp.sin(nnp.cos(nnp.exp(v)))))
    x = g.variable(np.linspace(0, 1, 50))
    y = fun(x)
    (operation,) = g.store.operations.values()
    kept = [b.array is not None for b in operation.outputs]
    assert len(kept) > 1 and all(kept[1:]) and g.bookkeeping() == (1, 2)
    g.backward(y)
    np.testing.assert_allclose(x.grad, nnc.grad(fun)(x.array), rtol=1e-12)
    runs = []
    nnc.compile(lambda v: (nnc.debug.callback(lambda w: runs.append(1), v), nnp.sin(v))[1])(x)
    verify(g.graph())
    residuals = [b for b in operation.outputs if b.foreign]
    del y, operation
    assert g.bookkeeping() == (0, 1) and all(b.array is None for b in residuals)


def test_backward_does_not_run_a_compiled_function_again(g: nnc.DynamicGraph) -> None:
    runs: list[int] = []
    fun = nnc.compile(lambda v: (nnc.debug.callback(lambda w: runs.append(1), v), nnp.sin(v) * v)[1])
    x = g.variable(2.0)
    g.backward(fun(x))
    assert runs == [1]


def test_a_function_that_decides_on_values_stays_eager(g: nnc.DynamicGraph, caplog: pytest.LogCaptureFixture) -> None:
    fun = lambda x: x * 2 if x > 0 else x
    with caplog.at_level(logging.DEBUG, "nnc"):
        for i in range(8):
            x = g.variable(1.0 if i < 6 else -1.0)
            assert float(g.evaluate(fun, x)) == (2.0 if i < 6 else -1.0)
    assert sum("stays eager" in record.message for record in caplog.records) == 1


def test_runs_that_differ_are_not_compiled(g: nnc.DynamicGraph) -> None:
    numbers = iter(range(40))
    fun = lambda x: x + float(next(numbers))
    x = g.variable(1.0)
    assert [float(g.evaluate(fun, x)) for _ in range(40)] == [1.0 + i for i in range(40)]


def test_functions_that_come_and_go_are_not_kept(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    for i in range(10):
        g.evaluate(lambda v, i=i: v + i, x)
    gc.collect()
    assert len(g._repeated) == 0


def test_evaluation_within_eager_mode_is_command_by_command(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    fun = nnc.compile(lambda v: v * v * v)
    with nnc.debug.eager():
        y, z = fun(x), g.evaluate(fun, x)
    assert g.bookkeeping()[0] == 4 and float(y) == float(z) == 8


# -- compiled functions as one node ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["called", "evaluated"])
def test_a_compiled_function_is_one_node_with_its_own_gradient(g: nnc.DynamicGraph, way: str) -> None:
    scale = nnc.asarray([2.0, 3.0])

    @nnc.compile
    def fun(params: dict[str, Any], x: Any) -> Any:
        return {"sum": nnp.sum(nnp.sin(params["w"] * x) * scale), "x": x}

    w, x = g.variable([1.0, 2.0]), g.constant([3.0, 4.0])
    out = fun({"w": w}, x) if way == "called" else g.evaluate(fun, {"w": w}, x)
    assert [node.command.name for node in g.graph().nodes] == ["call"]
    g.backward(2 * out["sum"])
    expected = nnc.grad(lambda v: 2 * nnp.sum(nnp.sin(v * x.array) * scale))(w.array)
    np.testing.assert_allclose(w.grad, expected, rtol=1e-6)
    assert fun.cache_info().misses == 1
    fun({"w": w}, x)
    assert fun.cache_info().misses == 1


def test_compiled_loops_and_second_derivatives_work_on_variables(g: nnc.DynamicGraph) -> None:
    fun = nnc.compile(lambda x: nnc.while_loop(lambda c: c < 100, lambda c: c * c, x))
    x = g.variable(3.0)
    g.backward(fun(x))
    assert float(x.grad) == 8 * 3**7
    slope = nnc.grad(nnc.compile(lambda v: v**3))
    y = g.variable(2.0)
    g.backward(slope(y))
    assert float(y.grad) == 12


def test_a_compiled_method_and_static_arguments_take_variables(g: nnc.DynamicGraph) -> None:
    class Model:
        @nnc.compile(static_argnums=(0, 2))
        def power(self, x: Any, n: int) -> Any:
            return x**n

    x = g.variable(2.0)
    y = Model().power(x, 3)
    g.backward(y)
    assert float(y) == 8 and float(x.grad) == 12


def test_a_compiled_function_that_captures_a_variable_runs_command_by_command(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    y = nnc.compile(lambda v: v * x)(3.0)
    g.backward(y)
    assert float(x.grad) == 3


def test_a_compiled_function_is_differentiated_by_the_operands_that_are_active() -> None:
    g, f = nnc.DynamicGraph(), nnc.compile(lambda x, y: nnp.sum(x * y))
    x, y = g.variable(np.array([2.0, 3.0])), g.variable(np.array([5.0, 7.0]))
    for a, b in ((x, g.constant(y.array)), (g.constant(x.array), y), (x, y)):
        x.grad = y.grad = None
        g.backward(g.evaluate(f, a, b))
        for variable, given, other in ((x, a, y), (y, b, x)):
            if given is variable:
                np.testing.assert_array_equal(variable.grad, other.array)
            else:
                assert variable.grad is None


def test_another_shape_between_two_equal_steps_has_a_gradient_of_its_own() -> None:
    g = nnc.DynamicGraph()
    for n in (3, 5, 3, 5):
        x = g.variable(np.arange(n, dtype=np.float64))
        g.backward(nnp.sum(x * x) / n)
        np.testing.assert_allclose(x.grad, 2 * np.arange(n) / n)


def test_a_function_that_never_does_the_same_is_looked_at_for_a_while_only() -> None:
    different, repeated = Repeated(), Repeated()
    assert not any(different.is_due((number,)) or different.is_over for number in range(29))
    assert not different.is_due((29,)) and different.is_over
    assert [repeated.is_due(("line",)) for _ in range(EQUAL_RUNS)] == [False] * (EQUAL_RUNS - 1) + [True]
    assert repeated.is_over
