"""Loops outside of compiled functions: their iterations run as calls of kernels, planned once, and have the values, errors and
effects of commands that are called one by one.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note

import nnc
import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.commands.loop import run_graph
from nnc.errors import NotFiniteError, OutOfBoundsError
from nnc.graph import Graph
from nnc.graph.dispatch import replaced_eager
from nnc.trace.core import eager
from nnc.trace.core.eager import EagerInterpreter
from tests.fuzz.programs.generated import Step, leaves, run, steps
from tests.fuzz.programs.test_graphs_of_loops import arguments, graphs


@contextmanager
def one_by_one() -> Iterator[None]:
    """Within the block, sub-graphs run command by command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager, "_SubGraphs", lambda: run_graph)
        yield


def check_same_bits(found: Any, wanted: Any) -> None:
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        a, b = np.asarray(x), np.asarray(y)
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


@given(graphs())
def test_loops_and_branches_have_the_bits_of_their_commands(graph: Graph) -> None:
    note(str(graph))
    for iterations in (0, 1, 3):
        inputs = [Array(x) for x in arguments(graph, iterations)]
        found = graph.evaluate(inputs)
        with one_by_one():
            check_same_bits(found, graph.evaluate(inputs))


@given(steps(), leaves())
def test_iterations_have_the_bits_of_their_commands(program: list[Step], inputs: list[Any]) -> None:
    def rows() -> Any:
        body = lambda total, i: (total + 1, (total, *run(program, [*inputs, i])))
        return nnc.scan(body, nnp.zeros(2), nnp.arange(3.0))

    found = rows()
    with one_by_one():
        check_same_bits(found, rows())


def test_an_error_has_the_line_of_the_body() -> None:
    def body(i: Any, x: Any) -> Any:
        y = x + 1
        return y + nnp.take(x, i)  # here

    with pytest.raises(OutOfBoundsError, match=r"index 3 .*\n.*return y \+ nnp.take\(x, i\)  # here"):
        nnc.fori_loop(0, 5, body, nnp.ones(3))


def test_a_callback_runs_once_an_iteration_on_arrays_that_it_cannot_write_to() -> None:
    seen: list[Any] = []

    def body(i: Any, x: Any) -> Any:
        nnc.debug.callback(seen.append, x * 2)
        return x + 1

    check_same_bits(nnc.fori_loop(0, 3, body, nnp.zeros(2)), nnp.full(2, 3.0))
    assert [float(np.asarray(x)[0]) for x in seen] == [0.0, 2.0, 4.0]
    assert not any(np.asarray(x).flags.writeable for x in seen)


def test_an_error_of_a_callback_is_raised_once() -> None:
    calls: list[Any] = []

    def refuse(x: Any) -> None:
        calls.append(x)
        raise ValueError("no")

    def body(i: Any, x: Any) -> Any:
        nnc.debug.callback(refuse, x)
        return x

    with pytest.raises(ValueError, match="no"):
        nnc.fori_loop(0, 3, body, nnp.zeros(2))
    assert len(calls) == 1


def test_each_command_of_an_iteration_is_checked_where_values_must_be_finite() -> None:
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match=r"^log: "):
        nnc.fori_loop(0, 3, lambda i, x: nnp.exp(nnp.log(x - 1)), nnp.ones(2))


def test_another_interpreter_sees_each_command_of_an_iteration() -> None:
    class Counting(EagerInterpreter):
        def process(self, command: Any, *rest: Any) -> Any:
            seen.append(command.name)
            return super().process(command, *rest)

    seen: list[str] = []
    with replaced_eager(Counting()):
        nnc.fori_loop(0, 3, lambda i, x: nnp.sin(x), nnp.ones(2))
    assert seen.count("sin") == 3


def test_operands_that_are_all_broadcast_have_the_size_of_their_result() -> None:
    def body(i: Any, x: Any) -> Any:
        return nnp.broadcast_to(x[0], (3,)) + nnp.broadcast_to(x[1] * 2, (3,))

    check_same_bits(nnc.fori_loop(0, 2, body, nnp.arange(3.0)), nnp.full(3, 6.0))


def test_values_of_an_iteration_are_freed_after_their_last_use() -> None:
    def body(i: Any, x: Any) -> Any:
        for _ in range(12):
            x = nnp.sin(x)
        return x

    x = nnp.ones(1 << 18)
    tracemalloc.start()
    try:
        nnc.fori_loop(0, 2, body, x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4.5 * x.nbytes


def test_results_of_which_one_is_donated_stay_as_they_are() -> None:
    def body(i: Any, carry: Any) -> Any:
        y = carry[0] + 1
        return y, y

    a, b = nnc.fori_loop(0, 3, body, (nnp.zeros(4), nnp.zeros(4)))
    nnc.compile(lambda x: x * 2, donate_argnums=0)(a)
    assert np.asarray(b).tolist() == [3.0] * 4
