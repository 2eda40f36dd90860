"""Public functions on variables, called again and again: the same values, history and errors, with less work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.loaded import compiler
from nnc.calls.specialise import specialised
from nnc.errors import ArgumentTypeError, OutOfBoundsError
from nnc.trace.dynamic import interpreter
from nnc.trace.dynamic import routine as dynamic_routine

RNG = np.random.default_rng(0)
F = RNG.normal(size=(3, 4)).astype(np.float32)
V = RNG.normal(size=4).astype(np.float32)
D = RNG.normal(size=(3, 4))
LABELS = np.array([1, 3, 0])
IMAGES = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
WEIGHT = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
TIMES = 5  # calls, of which the last are answered by a recipe

Call = Callable[[Any, Any], Any]

CALLS: dict[str, tuple[Call, Any, Any]] = {
    "x + y": (lambda x, y: x + y, F, F), "x + row": (lambda x, y: x + y, F, V), "x * 1.5": (lambda x, y: x * 1.5, F, F),
    "2 - x": (lambda x, y: 2 - x, F, F), "x / 3": (lambda x, y: x / 3, D, D), "float + double": (lambda x, y: x + y, F, D),
    "x ** 2": (lambda x, y: x**2, F, F), "x ** y": (lambda x, y: abs(x) ** y, F, F), "x > y": (lambda x, y: x > y, F, F),
    "x + array": (lambda x, y: x + F, F, F), "where": (lambda x, y: nnp.where(x > 0, x, 0), F, F),
    "x @ y": (lambda x, y: x @ y.T, F, F), "x.T": (lambda x, y: x.T, F, F), "reshape": (lambda x, y: x.reshape(4, 3), F, F),
    "x[1:]": (lambda x, y: x[1:, ::2], F, F), "x[:, 0]": (lambda x, y: x[:, 0], F, F), "x[indices]": (lambda x, y: x[LABELS], V, V),
    "sum": (lambda x, y: x.sum(0), F, F), "mean": (lambda x, y: nnp.mean(x), F, F), "max": (lambda x, y: nnp.max(x, axis=1), F, F),
    "argmax": (lambda x, y: x.argmax(1), F, F), "var": (lambda x, y: x.var(), F, F), "floor": (lambda x, y: nnp.floor(x), F, F),
    "concatenate": (lambda x, y: nnp.concatenate([x, y]), F, F), "stack": (lambda x, y: nnp.stack([x, F]), F, F),
    "astype": (lambda x, y: x.astype("float64"), F, F), "astype same": (lambda x, y: x.astype("float32"), F, F),
    "zeros_like": (lambda x, y: nnp.zeros_like(x), F, F), "weak": (lambda x, y: nnp.exp(0.5) * x, F, F),
    "relu": (lambda x, y: nn.relu(x), F, F), "gelu": (lambda x, y: nn.gelu(x), F, F), "elu": (lambda x, y: nn.elu(x, 0.5), D, D),
    "softmax": (lambda x, y: nn.softmax(x), F, F), "layer_norm": (lambda x, y: nn.layer_norm(x, y, y), F, V),
    "cross entropy": (lambda x, y: nn.softmax_cross_entropy(x, LABELS), F, F), "mse": (lambda x, y: nn.mse(x, y), F, F),
    "conv": (lambda x, y: nn.conv(x, y, padding="SAME"), IMAGES, WEIGHT),
    "max_pool": (lambda x, y: nn.max_pool(x, 2), IMAGES, IMAGES),
}  # fmt: skip


def outcome(call: Call, a: Any, b: Any, change: bool) -> tuple[Any, ...]:
    """Returns all visible results of a call on two variables of a new graph, and of the gradients of its result."""
    g = nnc.DynamicGraph()
    x, y = g.variable(a), g.variable(b)
    result = call(x, y)
    values = np.asarray(result)
    seen: list[Any] = [type(result), result.spec, result.weak, values, getattr(result, "constant", None)]
    seen += [g.bookkeeping(), sorted(node.command.name for node in g.graph().nodes)]
    if isinstance(result, nnc.Array) or result.constant:
        return tuple(seen)
    seen.append(g.depends(result, [x, y]))
    g.backward(result, df=[np.ones_like(values)])
    seen += [x.grad, y.grad]
    if change:
        x.set(a[::-1].copy())
        seen.append(np.asarray(result))
    return tuple(seen)


def check_equal(found: tuple[Any, ...], expected: tuple[Any, ...], rtol: float = 0.0) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        if isinstance(y, (np.ndarray, nnc.Array)):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
        else:
            assert x == y


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("change", [False, True], ids=["once", "re-bound"])
def test_later_calls_agree_with_the_first_one_in_values_and_records(
    name: str, change: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, so no routine is compiled here, nor one taken that another test compiled."""
    monkeypatch.setattr(interpreter, "runner", lambda routine, record, make: routine.run)
    call, a, b = CALLS[name]
    with nnc.debug.eager():  # runs the functions themselves
        expected = outcome(call, a, b, change)
    for _ in range(TIMES):
        check_equal(outcome(call, a, b, change), expected)


def test_a_known_function_does_not_run_again() -> None:
    runs = []

    @specialised(3)
    def function(x: Any, y: Any, n: Any) -> Any:
        runs.append(type(x).__name__)
        return nnp.where(x > n, x * 2, y.T).reshape(-1)

    g = nnc.DynamicGraph()
    for i in range(8):
        with g.no_grad():
            function(g.variable(F * i), F.T, 0.5 * i)
        function(g.variable(F * i), g.constant(F.T), i + 0.5)
        function(F * i, nnc.asarray(F.T), 1.0)
    assert runs == ["Variable", "Variable", "ndarray", "StagedTracer"]


def test_a_function_that_is_watched_runs_itself() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(F)
    for _ in range(TIMES):
        nn.relu(x)
    with g.watch() as notes:
        nn.relu(x)
    assert len(notes.lines) == 2  # a comparison and a choice


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routines are compiled when they run for the first time."""
    monkeypatch.setattr(dynamic_routine, "ENOUGH", 1e-9)


@specialised(2)
def several(x: Any, y: Any) -> Any:
    """Commands, views and numbers, of which some values are kept for the derivative."""
    z = nnp.exp(x * 0.5) / (1 + abs(y))
    return nnp.where(z.T > 1, z.T, 0.1 * z.T).reshape(-1)[1:]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["relu", "gelu", "softmax", "layer_norm", "cross entropy", "mse", "several"])
def test_a_compiled_routine_agrees_with_its_commands_in_values_and_records(name: str) -> None:
    call, a, b = CALLS.get(name, (several, F, F))
    with nnc.debug.eager():
        expected = outcome(call, a, b, False)
    for _ in range(TIMES):
        check_equal(outcome(call, a, b, False), expected, rtol=1e-6)


def test_routines_that_run_often_are_compiled_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    g = nnc.DynamicGraph()
    table = RNG.normal(size=(61, 53)).astype(np.float32)
    with caplog.at_level(logging.DEBUG, "nnc"):
        for i in range(400):
            x = g.variable(table * (1 + i))
            y = nn.relu(x)
            assert g.bookkeeping() == (1, 3)  # the mask is one
            np.testing.assert_array_equal(y, np.maximum(x.array, 0))
    found = [record.message for record in caplog.records if "relu" in record.message]
    assert len(found) == 1 and found[0].startswith("dynamic graph: compiled relu, which ran ")
    g.backward(nnp.sum(y))
    np.testing.assert_array_equal(x.grad, table > 0)


def test_denormal_numbers_stay_however_often_a_function_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_routine, "ENOUGH", 5e-5)
    g = nnc.DynamicGraph(memo_bytes=0)
    x = g.variable(np.full(100, 1e-39, np.float32))
    expected = np.asarray(several(x, x))
    assert (expected > 0).all()
    for _ in range(50):
        np.testing.assert_array_equal(several(x, x), expected)
    fun = lambda y: y * 0.5 + y
    found = [np.asarray(g.evaluate(fun, x)) for _ in range(6)]
    for value in found:
        np.testing.assert_array_equal(value, np.full(100, 1e-39, np.float32) * np.float32(1.5))


@pytest.mark.parametrize("native", ["0", "1"])
def test_routines_become_programs_unless_native_code_is_switched_off(
    native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnc.make_graph(lambda x: nnp.exp(x) + 1)(F)
    monkeypatch.setenv("NNC_NATIVE", native)
    program = nnc.DynamicGraph()._native_program(graph)
    assert (program is not None) == (native == "1" and compiler() is not None)


@pytest.mark.usefixtures("at_once")
def test_arrays_between_that_nothing_reads_are_not_kept() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(F)
    for _ in range(TIMES):
        y = nn.gelu(x)
        kept = [b.array is not None for op in g.store.operations.values() for b in op.outputs]
        assert len(kept) > 2 and not all(kept)
        del y


@pytest.mark.usefixtures("at_once")
def test_a_mistake_is_told_at_the_user_s_line_and_leaves_nothing_behind() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(F)
    for _ in range(TIMES):
        assert nn.softmax_cross_entropy(x, LABELS).shape == (3,)
    with pytest.raises(OutOfBoundsError) as caught:
        nn.softmax_cross_entropy(x, LABELS + 5)
    assert "test_routine.py" in str(caught.value)
    del caught
    assert g.bookkeeping() == (0, 1)


def test_a_variable_whose_array_was_donated_says_so() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(F)
    for _ in range(TIMES):
        x + x
    x.array.delete()
    with pytest.raises(ArgumentTypeError, match="donated"):
        x + x
    with pytest.raises(ArgumentTypeError, match="donated"):
        nnp.cumsum(x)


def test_nothing_is_recorded_within_no_grad_by_recipes() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(F)
    for _ in range(TIMES):
        with g.no_grad():
            y = nn.softmax(x)
        assert g.bookkeeping() == (0, 1) and y.constant
        assert not nn.softmax(x).constant


def test_finiteness_is_checked_of_every_command_also_of_known_functions() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(np.array([1.0, 0.0]))
    with np.errstate(all="ignore"):
        for _ in range(TIMES):
            nnp.log(x)
        with nnc.debug.check_finite(), pytest.raises(FloatingPointError) as caught:
            nnp.log(x)
    assert "log: 1 of 2 elements" in str(caught.value) and "test_routine.py" in str(caught.value)


def test_variables_of_two_graphs_are_refused_by_known_functions_too() -> None:
    g, h = nnc.DynamicGraph(), nnc.DynamicGraph()
    x, y = g.variable(F), h.variable(F)
    for _ in range(TIMES):
        x + x
    with pytest.raises(nnc.errors.TraceError, match="two dynamic graphs"):
        x + y


@pytest.mark.usefixtures("at_once")
def test_memoised_runs_of_compiled_routines_have_the_residuals_of_each_record() -> None:
    g = nnc.DynamicGraph()
    x, y = g.variable(D.repeat(40, 0)), g.variable(D.repeat(40, 0))
    with g.no_grad():
        for _ in range(TIMES):
            first = several(x, y)  # keeps its result alone
    second = several(x, y)
    np.testing.assert_allclose(first, second)
    g.backward(nnp.sum(second))
    expected = nnc.grad(lambda v: nnp.sum(several(v, y.array)))(x.array)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12)
    hits = g.memo_stats().hits
    several(x, y)
    assert g.memo_stats().hits == hits + 1


def test_a_compiled_function_is_not_traced_again_because_known_functions_grew() -> None:
    relu = nn.relu
    fun = nnc.compile(lambda x: relu(x))
    fun(F)
    for n in range(2, 8):
        for _ in range(TIMES):
            relu(np.ones(n))
    fun(F)
    assert fun.cache_info().misses == 1
