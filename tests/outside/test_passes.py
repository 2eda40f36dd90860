"""Commands of other packages that fill the columns of nnc are rewritten by its passes as the commands of nnc are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.elementwise import FLOAT, add, elementwise
from nnc.commands.rules import batch_elementwise
from nnc.graph import Command, register
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.lower.passes.tools import check_same_bits, names, run

pytestmark = pytest.mark.usefixtures("own_registries")
RNG = np.random.default_rng(1)
X = RNG.normal(size=(4096, 32)).astype(np.float32)  # half a megabyte
ROW = RNG.normal(size=32).astype(np.float32)


def rewritten(function: Callable[..., Any], inputs: list[Any], *passes: str) -> list[str]:
    """The commands of a traced function after these passes; the results stay the same."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *passes)
    check_same_bits(graph, after, inputs)
    return names(after)


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

    found = rewritten(f, [X], *names_of(SIMPLIFYING), "at_readers")
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
        after = run(graph, "dce", "cse", "fewer_residuals", "dce")
        check_same_bits(graph, after, [np.ones(4, np.float32), X[:5, :4]])
        return names([node for node in after.nodes if node.graphs][-1].graphs[0])

    cheap, expensive = add_half(weight=2), elementwise("test_far", np.hypot, "hypot(x, y)", arity=2)
    assert commands_of_reader(cheap).count("test_half_sum") == commands_of_reader(add).count("add") - 1 == 5
    assert "test_far" not in commands_of_reader(expensive)


def test_equal_nodes_of_a_new_command_that_commutes_are_one() -> None:
    half = add_half(commutes=True)
    assert rewritten(lambda x, y: half(x, y) * half(y, x), [X, X + 1], "cse") == ["test_half_sum", "mul"]


def test_a_new_command_that_cannot_fail_leaves_a_loop_that_may_run_no_iteration() -> None:
    def leaves(columns: dict[str, Any]) -> bool:
        name = f"test_sorted_{len(columns)}"
        new = register(
            name, infer=lambda x: x, reference=np.sort, cost=lambda x: x.size, batch=batch_elementwise(name), **columns
        )

        def f(x: Any, y: Any) -> Any:
            return nnc.while_loop(lambda c: nnp.sum(c) < 0, lambda c: c + new(y), x)

        return name in rewritten(f, [ROW, ROW], "licm", "dce")

    assert leaves({"cannot_fail": True}) and not leaves({})
