from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import MemoryBudgetError
from nnc.graph import Graph, GraphBuilder
from nnc.lower.passes.memory.rematerialize_to_budget import frugal
from nnc.run.program import Program
from tests.fuzz.programs import test_graphs, test_graphs_of_loops
from tests.unit.lower.passes.tools import evaluate

KIB = 1024
EXAMPLES = settings(max_examples=max(5, settings.default.max_examples // 3))  # each compiles three programs or more


def there_and_back(length: int = 12, first: str = "tanh") -> Graph:
    """Values of 1 KiB made one from the other, then multiplied up in the opposite order."""
    b = GraphBuilder("there_and_back")
    x = b.input((16, 16), "float32")
    values = [b.add(first, x)]
    for _ in range(length - 1):
        values.append(b.add("sin", values[-1]))
    total = b.add("cos", values[-1])
    for value in reversed(values):
        total = b.add("add", b.add("cos", total), b.add("mul", total, value))
    return b.build(total)


def compile_for(graph: Graph, budget: int | None, **changes: Any) -> Program:
    return lower(
        graph, Options(verify_passes=True, memory_budget=budget, streams=1, native=False, **changes), choose_kernel
    )


def image() -> Any:
    return np.random.default_rng(0).uniform(-1, 1, (16, 16)).astype("float32")


@pytest.mark.parametrize("budget", [12 * KIB, 9 * KIB, 7 * KIB])
def test_a_program_that_computes_again_gives_the_same_bits_within_the_budget(budget: int) -> None:
    graph = there_and_back()
    unlimited, limited = compile_for(graph, None), compile_for(graph, budget)
    assert unlimited.memory_plan.peak > 12 * KIB
    assert limited.memory_plan.peak <= budget
    np.testing.assert_array_equal(limited.run([image()])[0], unlimited.run([image()])[0])


def test_a_budget_that_is_large_enough_changes_nothing() -> None:
    graph = there_and_back()
    unlimited = compile_for(graph, None)
    limited = compile_for(graph, unlimited.memory_plan.peak)
    assert limited.as_text() == unlimited.as_text()
    assert not limited.memory_plan.recomputed.rows


def test_the_same_budget_gives_the_same_program() -> None:
    one, other = (compile_for(there_and_back(), 8 * KIB) for _ in range(2))
    assert one.as_text() == other.as_text()


def test_the_memory_plan_lists_rematerialized_values() -> None:
    plan = compile_for(there_and_back(), 9 * KIB).memory_plan
    again = plan.recomputed
    assert {row.command for row in again.rows} <= {"tanh", "sin"}
    assert all(row.source is not None and row.source.file == __file__ for row in again.rows)
    assert again.nbytes == len(again.rows) * 2 * KIB
    assert again.seconds > 0
    assert f"recomputed to fit the budget: {len(again.rows)} commands" in str(plan)
    assert "recomputed" not in str(compile_for(there_and_back(), None).memory_plan)


def test_copies_stand_right_before_their_use_with_the_line_of_the_original() -> None:
    program = compile_for(there_and_back(), 11 * KIB)
    commands = [step.command.name for step in program.bound.steps]
    turn = commands.index("cos")
    assert 0 < len(program.memory_plan.recomputed.rows) == sum(name in ("sin", "tanh") for name in commands[turn:])
    late = [step for step in program.bound.steps[turn:] if step.command.name == "sin"]
    assert all(step.source == program.bound.steps[1].source for step in late)


def test_an_impossible_budget_names_the_largest_tensors_and_one_that_works() -> None:
    graph = there_and_back()
    with pytest.raises(MemoryBudgetError, match="even if it recomputes") as caught:
        compile_for(graph, KIB)
    assert "float32[16,16] (1.00 KiB) at" in str(caught.value)
    assert "test_rematerialize_to_budget.py" in str(caught.value)
    found = re.search(r"raise memory_budget to (\d+)", str(caught.value))
    assert found is not None
    smallest = int(found[1])
    assert smallest <= 6 * KIB
    assert compile_for(graph, smallest).memory_plan.peak <= smallest
    with pytest.raises(MemoryBudgetError, match=f"raise memory_budget to {smallest}"):
        compile_for(graph, smallest - 1)


def test_random_draws_and_effects_happen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_NATIVE", "0")  # a single kernel would hold no values in memory
    seen = []

    @nnc.compile(memory_budget=9 * KIB, streams=1)
    def f(x: Any, key: Any) -> Any:
        noise = nnc.random.normal(key, (16, 16))
        nnc.debug.callback(lambda value: seen.append(float(value)), nnp.sum(noise))
        values = [nnp.tanh(x + noise)]
        for _ in range(11):
            values.append(nnp.sin(values[-1]))
        total = values[-1]
        for value in reversed(values):
            total = nnp.cos(total) + total * value
        return total * noise

    f(image(), nnc.random.key(0))
    executable = f.lower(image(), nnc.random.key(0)).compile()
    again = [row.command for row in executable.memory_plan.recomputed.rows]
    assert again
    assert set(again) <= {"add", "sin", "tanh"}
    assert len(seen) == 1


def test_views_of_rematerialized_values_show_the_copy() -> None:
    b = GraphBuilder("views")
    x = b.input((16, 16), "float32")
    values = [b.add("tanh", x)]
    for _ in range(9):
        values.append(b.add("sin", values[-1]))
    turned = [b.add("flip", b.add("transpose", value, permutation=(1, 0)), axes=(0,)) for value in values]
    total = b.add("cos", values[-1])
    for value in reversed(turned):
        total = b.add("add", b.add("cos", total), b.add("mul", total, value))
    graph = b.build(total)
    limited = compile_for(graph, 8 * KIB)
    assert limited.memory_plan.recomputed.rows
    np.testing.assert_array_equal(limited.run([image()])[0], compile_for(graph, None).run([image()])[0])


@pytest.mark.parametrize("part", [0.8, 0.6])
def test_training_steps_within_a_budget_give_the_same_bits(part: float) -> None:
    def step(model: Any, x: Any) -> Any:
        loss, grads = nnc.value_and_grad(lambda m: nnp.mean(m(x) ** 2))(model)
        return loss, nnc.tree.map(lambda p, g: p - 0.1 * g, model, grads)

    layers = [nn.Conv(4, 4, 3, padding=1, key=key) for key in nnc.random.split(nnc.random.key(0), 6)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nnp.tanh)))
    x = np.random.default_rng(0).normal(size=(4, 4, 12, 12)).astype("float32")
    unlimited = nnc.compile(step, streams=1).lower(model, x).compile()
    budget = int(part * unlimited.memory_plan.peak)
    limited = nnc.compile(step, memory_budget=budget).lower(model, x).compile()
    assert limited.memory_plan.peak <= budget
    assert limited.memory_plan.recomputed.rows
    for a, b in zip(nnc.tree.leaves(limited(model, x)), nnc.tree.leaves(unlimited(model, x)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_kernels_are_computed_again_as_a_whole_and_their_estimates_are_the_plans() -> None:
    def step(model: Any, x: Any) -> Any:
        def loss(model: Any) -> Any:
            y = x
            for layer in model:
                y = nn.relu(nn.instance_norm(layer(y)))
            return nnp.sum(y)

        return nnc.grad(loss)(model)

    model = [nn.Conv(8, 8, 3, padding=1, key=key) for key in nnc.random.split(nnc.random.key(0), 8)]
    x = np.random.default_rng(0).normal(size=(4, 8, 32, 32)).astype("float32")
    unlimited = nnc.compile(step, streams=1).lower(model, x).compile()
    budget = unlimited.memory_plan.peak * 6 // 10
    limited = nnc.compile(step, memory_budget=budget).lower(model, x).compile()
    again = limited.memory_plan.recomputed
    assert budget * 8 // 10 <= limited.memory_plan.peak <= budget
    assert {"fused", "with_epilogue"} & {row.command for row in again.rows}
    assert again.seconds < unlimited.cost.seconds / 4
    for a, b in zip(nnc.tree.leaves(limited(model, x)), nnc.tree.leaves(unlimited(model, x)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_in_the_frugal_order_nothing_waits_for_a_reader_that_is_ready() -> None:
    b = GraphBuilder("late_gradients")
    x = b.input((16, 16), "float32")
    values = [b.add(name, x) for name in ("sin", "cos", "tanh")]
    sums = [b.add("reduce_sum", value, axes=(0,)) for value in values]
    graph = b.build(*sums)
    after = frugal(graph, Options())
    assert [node.command.name for node in after.nodes] == [
        "sin",
        "reduce_sum",
        "cos",
        "reduce_sum",
        "tanh",
        "reduce_sum",
    ]
    for one, other in zip(evaluate(graph, [image()]), evaluate(after, [image()]), strict=True):
        np.testing.assert_array_equal(one, other)


def check_within(graph: Graph, inputs: list[Any], part: float, donated: tuple[int, ...]) -> None:
    """The program within a part of its memory gives the same bits, or there is none and a larger budget is named that will do."""
    unlimited = compile_for(graph, None, donated=donated)
    budget = int(part * unlimited.memory_plan.peak)
    try:
        limited = compile_for(graph, budget, donated=donated)
    except MemoryBudgetError as error:
        found = re.search(r"raise memory_budget to (\d+)", str(error))
        assert found is not None
        assert budget < int(found[1]) <= unlimited.memory_plan.peak
        budget = int(found[1])
        limited = compile_for(graph, budget, donated=donated)
    assert limited.memory_plan.peak <= budget
    expected = unlimited.run([x.copy() for x in inputs])
    for result, wanted in zip(limited.run([x.copy() for x in inputs]), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@EXAMPLES
@given(test_graphs.graphs(), st.sets(st.integers(0, 2)), st.floats(0.1, 1.0))
def test_random_graphs_within_random_budgets_give_the_same_bits(graph: Graph, donated: set[int], part: float) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    check_within(graph, inputs, part, tuple(sorted(i for i in donated if i < len(inputs))))


@EXAMPLES
@given(test_graphs_of_loops.graphs(), st.integers(0, 4), st.sets(st.integers(0, 6)), st.floats(0.1, 1.0))
def test_random_loops_within_random_budgets_give_the_same_bits(
    graph: Graph, iterations: int, donated: set[int], part: float
) -> None:
    note(str(graph))
    inputs = [np.asarray(x) for x in test_graphs_of_loops.arguments(graph, iterations)]
    check_within(graph, inputs, part, tuple(sorted(i for i in donated if i < len(inputs))))
