"""Commands of other packages that fill the columns of nnc are rewritten by its passes as the commands of nnc are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.commands.elementwise import FLOAT, add, elementwise
from nnc.commands.rules import batch_leading, together
from nnc.compiled.pipeline import plan
from nnc.graph import Command, Graph, TensorSpec, command, register
from nnc.graph.registry import ATTRIBUTES
from nnc.graph.rules import Rules
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import check_same_bits, names, run

pytestmark = pytest.mark.usefixtures("own_registries")
RNG = np.random.default_rng(1)
REWRITES = names_of(SIMPLIFYING)
X = RNG.normal(size=(4096, 32)).astype(np.float32)  # half a megabyte
ROW = RNG.normal(size=32).astype(np.float32)


def rewritten(function: Callable[..., Any], inputs: list[Any], *passes: str) -> list[str]:
    """The commands of a traced function after these passes; the results stay the same."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *passes)
    check_same_bits(graph, after, inputs)
    return names(after)


def twin(name: str) -> Command:
    """Registers a command with another name and the same cells, but for kernels."""
    old = command(name)
    cells = {key: column[old] for key, column in ATTRIBUTES.items() if old in column and key != "kernel"}
    return register(f"test_{name}", Rules(), arity=old.arity, outputs=old.outputs, **cells)


def with_twin(graph: Graph, new: Command) -> Graph:
    """The graph, its sub-graphs included, with a command's twin in its place."""
    nodes = [
        node.update(
            command=new if f"test_{node.command.name}" == new.name else node.command,
            graphs=tuple(with_twin(inner, new) for inner in node.graphs),
        )
        for node in graph.nodes
    ]
    return graph.update(nodes=tuple(nodes))


def check_twin(name: str, function: Callable[..., Any], inputs: list[Any], *passes: str) -> None:
    """Passes change a graph, and do the same to one with the twin of a command."""

    def walked(graph: Graph) -> list[str]:
        return [node.command.name.removeprefix("test_") for node in graph.walk()]

    graph = nnc.make_graph(function)(*inputs)
    after = run(with_twin(graph, twin(name)), *passes)
    wanted = run(graph, *passes)
    assert walked(wanted) == walked(after) != walked(graph)
    check_same_bits(wanted, after, inputs)


# -- elementwise commands ----------------------------------------------------------------------------------------------


def add_half(**columns: Any) -> Command:
    """Registers half of a sum."""
    return elementwise("test_half_sum", lambda x, y: (x + y) / 2, "(x + y) / 2", arity=2, accepts=FLOAT, **columns)


@pytest.mark.parametrize("weight", [1, 2, None])
def test_a_new_command_that_is_no_more_than_a_read_is_made_where_it_is_read(weight: int | None) -> None:
    half = add_half(weight=weight)

    def f(x: Any) -> Any:
        y = half(x, nnp.broadcast_to(ROW, x.shape))
        return nnp.sum(y * y, axis=0), nnp.exp(y), nnp.max(y, axis=0)

    found = rewritten(f, [X], *REWRITES, "rematerialize_in_consumers")
    assert found.count("test_half_sum") == (3 if weight == 1 else 1)


def test_a_new_cheap_command_is_run_again_rather_than_its_rows_kept() -> None:
    """Four commands for a row: as expensive ones they are not worth the row's bytes."""

    def commands_of_reader(command: Command) -> list[str]:
        def f(h: Any, x: Any) -> Any:
            def write(h: Any, x: Any) -> Any:
                y = x + h
                z = command(command(command(command(command(y, y), y), y), y), y)
                return y, (y, z)

            h, (y, z) = nnc.scan(write, h, x)
            return nnc.scan(lambda c, row: (c + row[0] * row[1], None), h, (y, z))[0]

        graph = nnc.make_graph(f)(np.ones(4, np.float32), X[:5, :4])
        after = run(graph, "dce", "cse", "rematerialize_residuals", "dce")
        check_same_bits(graph, after, [np.ones(4, np.float32), X[:5, :4]])
        return names([node for node in after.nodes if node.graphs][-1].graphs[0])

    cheap, expensive = add_half(weight=2), elementwise("test_far", np.hypot, "hypot(x, y)", arity=2, accepts=FLOAT)
    assert commands_of_reader(cheap).count("test_half_sum") == commands_of_reader(add).count("add") - 1 == 5
    assert "test_far" not in commands_of_reader(expensive)


def test_equal_nodes_of_a_new_command_that_commutes_are_one() -> None:
    half = add_half(commutes=True)
    assert rewritten(lambda x, y: half(x, y) * half(y, x), [X, X + 1], "cse") == ["test_half_sum", "mul"]


def test_a_new_command_that_cannot_fail_leaves_a_loop_that_may_run_no_iteration() -> None:
    def leaves(refuses: bool | None) -> bool:
        name = f"test_sorted_{refuses}"
        batch = batch_leading(name)
        new = register(
            name, Rules(infer=lambda x: x, reference=np.sort, batch=batch, cost=lambda x: x.size, refuses=refuses)
        )

        def f(x: Any, y: Any) -> Any:
            return nnc.while_loop(lambda c: nnp.sum(c) < 0, lambda c: c + new(y), x)

        return name in rewritten(f, [ROW, ROW], "licm", "dce")

    assert leaves(False) and not leaves(None)


# -- loops and branches ------------------------------------------------------------------------------------------------


def scanned(x: Any, w: Any) -> Any:
    """A loop with work that needs no iteration, and a product of each row."""
    return nnc.scan(lambda c, row: (c + row @ w + nnp.exp(w[0]), c), nnp.zeros(4), x)


def looped(x: Any, w: Any) -> Any:
    return nnc.while_loop(lambda c: nnp.sum(c) < 9, lambda c: c + nnp.exp(w[0]) ** 2, x[0])


def once(x: Any, w: Any) -> Any:
    return nnc.scan(lambda c, row: (c + row, c), w[0], x[:1])


def chosen(x: Any, w: Any) -> Any:
    return nnc.switch(nnp.asarray(1), [nnp.sin, nnp.cos], x)


@pytest.mark.parametrize(
    ("name", "function", "passes"),
    [
        ("scan", scanned, ["dce", "cse", "licm", "dce"]),
        ("scan", scanned, ["dce", "cse", "licm", "hoist_products", "sink_sums", "dce"]),
        ("scan", lambda x, w: nnc.grad(lambda w: nnp.sum(scanned(x, w)[0] ** 2))(w), list(REWRITES)),
        ("scan", once, ["fold", "dce"]),
        ("while", looped, ["dce", "cse", "licm", "dce"]),
        ("while", lambda x, w: nnc.while_loop(lambda c: False, lambda c: c + 1, x[0]), ["fold", "dce"]),
        ("case_of", chosen, ["fold", "dce"]),
    ],
)
def test_a_new_loop_or_branch_is_optimised(name: str, function: Callable[..., Any], passes: list[str]) -> None:
    check_twin(name, function, [X[:20, :4], RNG.normal(size=(4, 4)).astype(np.float32)], *passes)


@pytest.mark.parametrize(("name", "function"), [("scan", scanned), ("while", looped)])
def test_a_new_loop_runs_without_python(name: str, function: Callable[..., Any]) -> None:
    inputs = [X[:20, :4], RNG.normal(size=(4, 4)).astype(np.float32)]
    graph = with_twin(nnc.make_graph(function)(*inputs), twin(name))
    regions = [step.region for step in plan(graph, Options()).bound.steps if step.command.name == f"test_{name}"]
    assert regions and None not in regions


# -- joins -------------------------------------------------------------------------------------------------------------


def add_stack(name: str) -> Command:
    """Registers a join of two tensors, one after the other, with a row of zeros between them."""

    def infer(x: TensorSpec, y: TensorSpec) -> TensorSpec:
        return x.update(shape=(x.shape[0] + 1 + y.shape[0], *x.shape[1:]))

    def starts(x: TensorSpec, y: TensorSpec) -> list[tuple[int, ...]]:
        return [(0,) * x.ndim, (x.shape[0] + 1, *(0,) * (x.ndim - 1))]

    def reference(x: Any, y: Any) -> Any:
        return np.concatenate([x, np.zeros_like(x[:1]), y])

    return register(
        name,
        Rules(
            infer=infer,
            reference=reference,
            joined=starts,
            cost=lambda x, y: 0,
        ),
        arity=2,
    )


def test_parts_of_a_new_join_are_read_where_they_were_made() -> None:
    stack = add_stack("test_stack")
    found = rewritten(lambda x, y: nnp.exp(stack(x, y)[4:]), [X[:3], X[3:5]], "parts", "dce")
    assert found == ["exp"]


def test_sums_of_new_joins_are_joined() -> None:
    stack = add_stack("test_stack")
    inputs = [X[:1], X[1:2], X[2:3]]
    pad = lambda x: command("assemble")(x, shape=(3, 32), dtype=nnc.base.dtypes.float32, starts=((1, 0),))
    assert rewritten(lambda x, y, z: stack(x, y) + pad(z), inputs, "join_sums", "dce") == ["assemble"]


def test_parts_of_a_new_join_are_written_where_they_belong() -> None:
    """Neither is copied: kernels write their results into the join, and only the row between them is filled."""
    stack = add_stack("test_stack")
    x, y = X[:3], X[3:5]
    graph = nnc.make_graph(lambda x, y: stack(nnp.cumsum(x, axis=0), nnp.cumsum(y, axis=0)))(x, y)
    steps = [step.command.name for step in plan(graph, Options()).bound.steps]
    assert sorted(steps) == ["cumsum", "cumsum", "full"]
    found = nnc.compile(lambda x, y: stack(nnp.cumsum(x, axis=0), nnp.cumsum(y, axis=0)))(x, y)
    np.testing.assert_allclose(found, np.concatenate([np.cumsum(x, 0), 0 * x[:1], np.cumsum(y, 0)]), rtol=1e-5)


def test_two_new_commands_that_are_computed_together_are_one() -> None:
    low, high = (
        register(f"test_{f.__name__}", Rules(infer=lambda x: x, reference=f, cost=lambda x: 0))
        for f in (np.floor, np.ceil)
    )
    register(
        "test_both",
        Rules(
            infer=lambda x: (x, x),
            reference=lambda x: (np.floor(x), np.ceil(x)),
            cost=lambda x: 0,
        ),
        outputs=2,
    )
    together.set(low, (high, command("test_both")))
    assert rewritten(lambda x: (low(x), high(x)), [X], "join_pools") == ["test_both"]
    assert rewritten(lambda x: (high(x), low(x)), [X], "join_pools") == ["test_both"]
    assert rewritten(lambda x: (low(x), high(x * 2)), [X], "join_pools").count("test_both") == 0
