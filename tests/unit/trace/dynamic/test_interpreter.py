"""The dynamic graph: the content of variables, their derivatives, and when they are forgotten."""

from __future__ import annotations

import gc
import math
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError
from nnc.graph import structural_hash, verify


@pytest.fixture
def g() -> nnc.DynamicGraph:
    return nnc.DynamicGraph()


# -- values and derivatives --------------------------------------------------------------------------------------------


def test_x_log_x_at_19(g: nnc.DynamicGraph) -> None:
    x = g.variable(19.0)
    f = x * nnp.log(x) + 1.2 * x
    assert float(f) == pytest.approx(19 * math.log(19) + 22.8, rel=1e-6)
    g.backward(f)
    assert float(x.grad) == pytest.approx(math.log(19) + 2.2, rel=1e-6)


@pytest.mark.parametrize("leave", ["delete", "free", "write"])
def test_a_second_holder_of_a_value_gets_its_gradient_when_the_first_leaves(g: nnc.DynamicGraph, leave: str) -> None:
    x, y, z = g.variable(2.0), g.variable(3.0), g.variable(5.0)
    x.set(y)
    if leave == "free":
        y.free()
    elif leave == "write":
        y.set(7.0)
    else:
        del y
    g.backward(x * x * z)
    assert (x.grad, z.grad) == (30.0, 9.0)


def test_two_backward_calls_add_up_also_after_re_binding(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.float64(19))
    g.backward(x * nnp.log(x) + 1.2 * x)
    x.set(np.float64(10))
    g.backward(x * nnp.log(x) + 1.2 * x)
    assert float(x.grad) == pytest.approx(math.log(19) + math.log(10) + 4.4)


def test_a_backward_call_differentiates_with_respect_to_computed_values(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.float64(19))
    y, z = nnp.log(x), 1.2 * x
    g.backward(x * y + z, inputs=[x, y, z])
    assert float(y.grad) == 19.0 and float(z.grad) == 1.0
    assert float(x.grad) == pytest.approx(math.log(19) + 2.2)


def test_a_chain_of_four_has_its_gradient_when_the_values_between_are_released(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    y = x * 0.9
    for _ in range(3):
        y = y * 0.9  # nothing holds the former y
    assert g.bookkeeping() == (4, 5)
    assert sum(b.array is not None for op in g.store.operations.values() for b in op.outputs) == 1
    g.backward(y)
    assert float(x.grad) == pytest.approx(0.6561)


def test_a_direction_and_several_losses(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    g.backward(x * x, df=[nnp.asarray([1.0, 10.0])])
    np.testing.assert_allclose(x.grad, [2, 40])
    x.grad = None
    g.backward([nnp.sum(x * x), nnp.sum(3 * x)])
    np.testing.assert_allclose(x.grad, [5, 7])


def test_slices_that_are_not_read_have_gradient_zero(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0, 3.0])
    g.backward(nnp.sum(x[:2] * 5))
    np.testing.assert_array_equal(x.grad, [5, 5, 0])


def test_gradients_of_inputs_that_do_not_matter_are_zero(g: nnc.DynamicGraph) -> None:
    x, y = g.variable([1.0, 2.0]), g.variable(3.0)
    g.backward(y * y, inputs=[x, y])
    np.testing.assert_array_equal(x.grad, [0, 0])
    assert float(y.grad) == 6


def test_loops_and_branches_are_differentiated(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.float64(1.5))
    y = nnc.fori_loop(0, 3, lambda i, c: nnp.sin(c), x)
    z = nnc.cond(x > 1, lambda v: v * v, lambda v: v, x)
    g.backward(y + z)
    fun = lambda v: nnc.fori_loop(0, 3, lambda i, c: nnp.sin(c), v) + v * v
    assert float(x.grad) == pytest.approx(float(nnc.grad(fun)(np.float64(1.5))))


def test_python_decides_on_values(g: nnc.DynamicGraph) -> None:
    x = g.variable(0.5)
    y = x
    while y < 10:
        y = y * 3
    g.backward(y)
    assert float(x.grad) == 27


def test_long_random_frees_leave_the_gradient(g: nnc.DynamicGraph) -> None:
    y = g.variable(1.3)
    kept: dict[int, Any] = {}
    for i in range(10):
        kept[i] = g.variable(float(i + 1)) * y
        if i >= 5:
            if i <= 7:
                y.grad = None
            g.backward(kept[i], inputs=y)
        if i == 7:
            for j in range(5):
                del kept[j]
    assert float(y.grad) == 8 + 9 + 10


def test_transforms_nest_around_variables(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    f = lambda v: nnp.sum(v**3)
    slope = nnc.grad(f)(x)
    np.testing.assert_allclose(slope, [3, 12])
    g.backward(nnp.sum(slope))  # the gradient itself was recorded
    np.testing.assert_allclose(x.grad, [6, 12])
    np.testing.assert_allclose(nnc.vmap(lambda v: v * 2)(x), [2, 4])
    np.testing.assert_allclose(nnc.jvp(f, (x,), (nnp.ones(2),))[1], 15)


def test_backward_twice_through_a_detached_value_starts_at_it(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    y = x * x
    y.detach()
    g.backward(y)  # its own history stays as long as it lives
    assert float(x.grad) == 4
    x.grad = None
    g.backward(y * x)
    assert float(x.grad) == 4  # y is a constant of values that are computed from it


def test_a_detached_variable_stays_a_constant_when_it_is_written(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    y = x * x
    assert not y.constant
    y.detach()
    assert y.constant and "constant" in repr(y)
    y.set(nnp.asarray(5.0))
    g.backward(y * x)
    assert y.grad is None and float(x.grad) == 5


def test_a_long_chain_is_differentiated(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.float64(1.0))
    y = x
    for _ in range(1500):
        y = y * 1.0001
    g.backward(y)
    assert float(x.grad) == pytest.approx(1.0001**1500)


def test_functions_with_derivatives_of_their_own(g: nnc.DynamicGraph) -> None:
    @nnc.custom_vjp
    def twice(x: Any) -> Any:
        return 2 * x

    twice.defvjp(lambda x: (2 * x, x), lambda x, ct: (ct * 100 * x,))
    x = g.variable(3.0)
    g.backward(twice(x))
    assert float(x.grad) == 300
    y = g.variable(3.0)
    g.backward(nnc.checkpoint(lambda v: nnp.sin(v) * v)(y))
    assert float(y.grad) == pytest.approx(math.sin(3) + 3 * math.cos(3), rel=1e-6)


def test_complex_variables_and_integers_beside_floats(g: nnc.DynamicGraph) -> None:
    z, n = g.variable(1 + 2j), g.variable([0, 1])
    g.backward(nnp.real(z * nnp.conj(z)))
    np.testing.assert_allclose(z.grad, nnc.grad(lambda v: nnp.real(v * nnp.conj(v)))(1 + 2j))
    x = g.variable([1.0, 2.0, 3.0])
    g.backward(nnp.sum(x[n] * n))
    np.testing.assert_array_equal(x.grad, [0, 1, 0])
    assert n.grad is None


# -- re-binding --------------------------------------------------------------------------------------------------------


def test_a_variable_is_absent_until_it_is_written(g: nnc.DynamicGraph) -> None:
    x = g.variable()
    assert x.array is None
    with pytest.raises(ArgumentError, match="holds no array yet"):
        nnp.sin(x)
    x.set([1.0, 2.0])
    np.testing.assert_array_equal(x.array, [1, 2])
    assert x.shape == (2,)


def test_a_numpy_array_that_is_written_to_afterwards_does_not_matter(g: nnc.DynamicGraph) -> None:
    buffer = np.ones(200)
    x = g.variable(buffer)
    y = nnp.sum(x * x)
    buffer[:] = 5
    assert float(nnp.sum(x * x)) == 200
    g.backward(y)
    np.testing.assert_array_equal(x.grad, np.full(200, 2.0))
    x.set(buffer)
    buffer[:] = 0
    assert float(nnp.sum(x * x)) == 5000


def test_each_binding_is_a_symbol_of_its_own(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    y = x * x
    x.set(5.0)
    z = x * x
    graph = verify(g.graph())
    assert len({symbol for node in graph.nodes for symbol in node.outputs}) == len(graph.nodes)
    assert float(y) == 4 and float(z) == 25
    assert g.depends(y, x) == (False,) and g.depends(z, x) == (True,)


def test_assignment_looks_in_place_and_re_binds(g: nnc.DynamicGraph) -> None:
    x, v = g.variable([1.0, 2.0, 3.0, 4.0]), g.variable(10.0)
    before = x * 1
    x[1:3] = v * 2
    np.testing.assert_array_equal(x.array, [1, 20, 20, 4])
    np.testing.assert_array_equal(before.array, [1, 2, 3, 4])
    g.backward(nnp.sum(x * x), inputs=v)
    assert float(v.grad) == 2 * 20 * 2 * 2
    x[0] = -1.0
    assert float(x[0]) == -1


def test_an_assignment_without_recording_leaves_a_variable_a_variable(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    with g.no_grad():
        x[0] = 5.0
    g.backward(nnp.sum(x * x))
    np.testing.assert_array_equal(x.grad, [10, 4])


def test_aliases_follow_the_re_binding_of_their_base(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(6.0))
    part, matrix = x[2:4], x.reshape(2, 3)
    row = matrix[1]
    column = matrix[:, 0]
    x.set(np.arange(6.0) * 10)
    np.testing.assert_array_equal(part, [20, 30])
    np.testing.assert_array_equal(row, [30, 40, 50])
    np.testing.assert_array_equal(column, [0, 30])
    g.backward(nnp.sum(row * row) + nnp.sum(column), inputs=x)
    np.testing.assert_array_equal(x.grad, [1, 0, 0, 61, 80, 100])
    x[3] = 7.0
    np.testing.assert_array_equal(row, [7, 40, 50])


def test_gradients_with_respect_to_an_alias_that_has_moved_on(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(4.0))
    part = x[1:3]
    before = nnp.sum(part * part)
    x.set(np.arange(4.0) + 10)
    after = nnp.sum(part * part)
    x.set(np.arange(4.0) + 20)  # the alias has not been read since
    g.backward(nnp.sum(part * part), inputs=part)
    np.testing.assert_array_equal(part.grad, [42, 44])
    g.backward([before, after], inputs=part)
    np.testing.assert_array_equal(part.grad, [42, 44])  # those showed other bindings


def test_a_view_of_a_strided_alias_is_a_value_of_its_own(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(6.0).reshape(2, 3))
    column = x[:, 1]
    first, copied = x.T, column[:1]
    x.set(np.zeros((2, 3)))
    np.testing.assert_array_equal(first, np.zeros((3, 2)))
    np.testing.assert_array_equal(copied, [1])


def test_an_alias_keeps_its_values_when_its_base_is_gone(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(4.0))
    part = x[1:3]
    x.free()
    np.testing.assert_array_equal(part, [1, 2])
    y = g.variable(np.arange(4.0))
    part = y[1:3]
    del y
    np.testing.assert_array_equal(part, [1, 2])


def test_an_alias_is_written_through_its_base(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(4.0))
    with pytest.raises(ArgumentTypeError, match="it is an alias"):
        x[1:3].set([0.0, 0.0])


def test_a_thousand_times_reshaped_variable_is_still_an_alias_of_its_base(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.arange(4.0))
    y = x.reshape(2, 2)
    for i in range(1000):
        y = y.reshape((4,) if i % 2 else (1, 4))
    x.set(np.ones(4))
    np.testing.assert_array_equal(y, np.ones(4))


# -- forgetting: operations and tensors that are kept ------------------------------------------------------------------

Step = tuple[str, str, tuple[int, int]]


def scaled_log(g: nnc.DynamicGraph) -> dict[str, Any]:
    x = g.variable(10.0)
    y = nnp.log(x)
    return {"x": x, "y": y, "z": 0.5 * y}


def log_times_variable(g: nnc.DynamicGraph) -> dict[str, Any]:
    a, x = g.variable(2.0), g.variable(10.0)
    y = nnp.log(x)
    return {"a": a, "x": x, "y": y, "z": a * y}


def exp_times_log(g: nnc.DynamicGraph) -> dict[str, Any]:
    x = g.variable(1.5)
    y, z = nnp.log(x), nnp.exp(x)
    return {"x": x, "log": y, "exp": z, "f": z * y}


def exp_of_scaled_log(g: nnc.DynamicGraph) -> dict[str, Any]:
    x = g.variable(10.0)
    y = nnp.log(x)
    z = 0.5 * y
    return {"x": x, "log": y, "z": z, "f": nnp.exp(z)}


# the operation, its variables, and how many operations and tensors are kept before and after each step
TABLE: list[tuple[str, Callable[[nnc.DynamicGraph], dict[str, Any]], tuple[int, int], list[Step]]] = [
    (
        "detach, then free the input", scaled_log, (2, 3),
        [("detach", "y", (1, 3)), ("free", "x", (0, 1)), ("free", "z", (0, 0))],
    ),
    ("free the input, then detach", scaled_log, (2, 3), [("free", "x", (1, 2)), ("detach", "y", (0, 1))]),
    ("free the result", scaled_log, (2, 3), [("free", "z", (1, 2)), ("free", "y", (0, 1)), ("free", "x", (0, 0))]),
    ("free what stands between", scaled_log, (2, 3), [("free", "y", (2, 3)), ("free", "z", (0, 1))]),
    ("detach the input", scaled_log, (2, 3), [("detach", "x", (1, 2)), ("detach", "y", (0, 1))]),
    (
        "a factor stays", log_times_variable, (2, 4),
        [("detach", "y", (2, 4)), ("free", "a", (1, 3)), ("free", "x", (0, 1))],
    ),
    (
        "two ways, one cut", exp_times_log, (3, 4),
        [("detach", "log", (3, 4)), ("detach", "exp", (2, 4)), ("free", "exp", (1, 3)), ("free", "x", (0, 1))],
    ),
    (
        "cut in the middle", exp_of_scaled_log, (3, 4),
        [("detach", "log", (2, 4)), ("free", "f", (1, 3)), ("free", "z", (1, 2)), ("free", "log", (0, 1))],
    ),
    (
        "from the end", exp_of_scaled_log, (3, 4),
        [("free", "f", (2, 3)), ("free", "z", (1, 2)), ("free", "log", (0, 1)), ("free", "x", (0, 0))],
    ),
    (
        "from the start", exp_of_scaled_log, (3, 4),
        [("free", "x", (2, 3)), ("free", "log", (1, 2)), ("free", "z", (0, 1)), ("free", "f", (0, 0))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "first", "steps"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_bookkeeping_counts_operations_and_bindings(
    g: nnc.DynamicGraph,
    make: Callable[[nnc.DynamicGraph], dict[str, Any]],
    first: tuple[int, int],
    steps: list[Step],
) -> None:
    variables = make(g)
    assert g.bookkeeping() == first
    for action, name, kept in steps:
        getattr(variables[name], action)()
        assert g.bookkeeping() == kept, (action, name)
        verify(g.graph())


def test_the_garbage_collector_frees_as_free_does(g: nnc.DynamicGraph) -> None:
    x = g.variable(10.0)
    y = nnp.log(x)
    z = 0.5 * y
    del y
    assert g.bookkeeping() == (2, 3)
    cycle: list[Any] = [z]
    cycle.append(cycle)
    del z, cycle
    gc.collect()
    assert g.bookkeeping() == (0, 1)
    del x
    assert g.bookkeeping() == (0, 0)


def test_detaching_takes_the_effect_away(g: nnc.DynamicGraph) -> None:
    v = log_times_variable(g)
    assert g.depends(v["z"], [v["a"], v["x"]]) == (True, True)
    v["y"].detach()
    assert g.depends(v["z"], [v["a"], v["x"]]) == (True, False)
    w = exp_times_log(g)
    w["log"].detach()
    assert g.depends(w["f"], w["x"]) == (True,)


def test_the_effects_that_outputs_can_still_depend_on(g: nnc.DynamicGraph) -> None:
    a, c = g.variable(10.0), g.variable(9.0)
    b, d = 0.5 * a, 0.4 * c
    e, f = 2 * d, a + c
    h = e + b
    assert float(f) == 19 and float(h) == pytest.approx(12.2)
    assert g.depends(h, [a, b, f]) == (True, True, False)
    assert g.depends(h, [a, e, c, f]) == (True, True, True, False)
    assert g.depends(f, [a, e, c]) == (True, False, True)
    assert g.depends([f, h], [e]) == (True,)


def test_arrays_go_that_no_derivative_reads(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.ones(1000))
    y = nnp.sin(x + 1) + 2  # sin reads x + 1; nothing reads sin(x + 1)
    arrays = [b.array for op in g.store.operations.values() for b in op.outputs]
    assert [array is not None for array in arrays] == [True, False, True]
    g.backward(nnp.sum(y))
    np.testing.assert_allclose(x.grad, np.cos(2.0))


def test_commands_without_a_derivative_are_not_kept(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.5, -2.0])
    y = [nnp.floor(x), x > 0, nnp.argmax(x), nnc.stop_gradient(x)]
    assert g.bookkeeping() == (0, 1)
    assert all(v.constant for v in y)


def test_no_grad_records_nothing(g: nnc.DynamicGraph) -> None:
    x = g.variable(2.0)
    with g.no_grad():
        y = x * x
    assert g.bookkeeping() == (0, 1)
    assert (y * x).constant is False and g.depends(y * x, y) == (False,)
    other = nnc.DynamicGraph()
    v = other.variable(1.0)
    with g.no_grad():
        z = v * 2.0  # of another graph
    assert other.bookkeeping() == (1, 2) and not z.constant


@pytest.mark.slow
def test_a_chain_of_twenty_thousand_operations_comes_and_goes(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    y = x
    for _ in range(20_000):
        y = y + 1.0
    assert g.bookkeeping() == (20_000, 20_001)
    del y
    assert g.bookkeeping() == (0, 1)


def test_a_graph_with_a_long_chain_is_collected_whole() -> None:
    g = nnc.DynamicGraph()
    y = g.variable(1.0)
    for _ in range(10_000):
        y = y * 1.0
    del g, y
    gc.collect()


def check_constant_memory(step: Callable[[], object]) -> None:
    """Runs 4,000 steps. From the 1,500th on, objects may not grow in number; in the last 400, bytes may not either."""
    blocks = []
    for count in (1500, 1500):
        for _ in range(count):
            step()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert blocks[1] - blocks[0] < 400
    tracemalloc.start()  # slow, so not from the beginning
    try:
        for _ in range(600):  # until all memory kept of the time before has been replaced
            step()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(400):
            step()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 40_000  # an array each step would be 100,000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_thousands_of_evaluations_hold_constant_memory(g: nnc.DynamicGraph) -> None:
    w = g.variable(np.ones((8, 40), np.float32))
    rng = np.random.default_rng(0)

    def step() -> None:
        with g.no_grad():
            y = g.constant(rng.random((40, 8), np.float32)) @ w
            assert y.array is not None

    check_constant_memory(step)
    assert g.bookkeeping() == (0, 1)


@pytest.mark.slow
def test_thousands_of_training_steps_hold_constant_memory(g: nnc.DynamicGraph) -> None:
    w = g.variable(np.ones(200, np.float32))
    optimizer = nnc.optim.sgd(0.01)
    rng = np.random.default_rng(0)

    def step() -> None:
        g.minimize(nnp.sum(w * rng.random(200, np.float32)), optimizer)

    check_constant_memory(step)
    assert g.bookkeeping() == (0, 1)
    assert len(g._derivatives) == 1


# -- threads ----------------------------------------------------------------------------------------------------------


def test_threads_share_a_graph(g: nnc.DynamicGraph) -> None:
    x = g.variable(np.float64(1.5))
    found: list[float] = []

    def work(k: int) -> None:
        for _ in range(30):
            y = x
            for _ in range(k):
                y = nnp.sin(y)
            found.append(float(y) - expected[k])

    expected = {}
    for k in (3, 5, 7, 9):
        value = 1.5
        for _ in range(k):
            value = math.sin(value)
        expected[k] = value
    threads = [threading.Thread(target=work, args=(k,)) for k in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120 and max(map(abs, found)) < 1e-12
    assert g.bookkeeping() == (0, 1)


def test_equal_structures_have_equal_graphs() -> None:
    hashes = set()
    for value in (1.0, 2.0):
        g = nnc.DynamicGraph()
        x = g.variable(value)
        y = nnp.sin(x) * x
        hashes.add(structural_hash(g.graph()))
        del y
    assert len(hashes) == 1


def test_nothing_is_recorded_for_a_constant(g: nnc.DynamicGraph) -> None:
    c, x = g.constant([1.0, 2.0]), g.variable([3.0, 4.0])
    assert c.constant and not x.constant
    doubled = c * 2.0
    assert doubled.constant and g.bookkeeping() == (0, 1)
    g.backward(nnp.sum(x * doubled))
    assert np.array_equal(x.grad, [2.0, 4.0]) and c.grad is None


@pytest.mark.parametrize("kept", [0, 1])
def test_an_operation_stays_while_one_of_its_results_is_held(g: nnc.DynamicGraph, kept: int) -> None:
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    x = g.variable(matrix)
    results = list(nnp.linalg.qr(x * 1.0))
    held = results[kept]
    del results
    gc.collect()
    g.backward(nnp.sum(held * held * np.arange(4.0).reshape(2, 2)))
    want = nnc.grad(lambda x: nnp.sum(nnp.linalg.qr(x * 1.0)[kept] ** 2 * np.arange(4.0).reshape(2, 2)))(matrix)
    np.testing.assert_allclose(np.asarray(x.grad), np.asarray(want), rtol=1e-6)
    del held
    gc.collect()
    assert g.bookkeeping()[0] == 0


def test_a_part_with_one_place_along_an_axis_is_contiguous_so_that_views_of_it_follow_the_base(
    g: nnc.DynamicGraph,
) -> None:
    base = g.variable(np.arange(20.0).reshape(4, 5))
    row, column = base[1:2, 1:4], base[2:3, ::5]  # one row of neighbours; one element, for any stride
    views = {
        "part of a row": nnp.reshape(row, (3,))[1:], "turned row": nnp.transpose(row)[:2, 0],
        "element": nnp.reshape(column, (1, 1, 1))[0],
    }  # fmt: skip
    base.set(np.arange(20.0).reshape(4, 5) + 100)
    found = {name: np.asarray(view).ravel().tolist() for name, view in views.items()}
    assert found == {"part of a row": [107, 108], "turned row": [106, 107], "element": [110]}


def test_aliases_along_axes_of_length_1_follow_their_base(g: nnc.DynamicGraph) -> None:
    base = g.variable(np.arange(6.0).reshape(1, 6, 1))
    views = {
        "turned": lambda x: nnp.transpose(x, (1, 0, 2)), "part": lambda x: x[0, 2:5, 0], "stepped": lambda x: x[::2, 1:3, ::3],
        "column": lambda x: nnp.reshape(x, (6, 1))[3:, :], "row": lambda x: nnp.transpose(nnp.reshape(x, (1, 6)))[1:4, 0],
        "every second": lambda x: x[0, ::2, 0],
    }  # fmt: skip
    aliases = {name: view(base) for name, view in views.items()}
    for step in range(3):
        value = np.arange(6.0).reshape(1, 6, 1) * (step + 1) + step
        base.set(value)
        for name, view in views.items():
            np.testing.assert_array_equal(np.asarray(aliases[name]), np.asarray(view(value)), err_msg=name)
