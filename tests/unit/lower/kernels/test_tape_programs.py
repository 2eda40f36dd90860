"""Graphs that take or yield tapes: the nodes between run as programs, and have the results of an evaluation node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import TAPE
from nnc.commands.loop import run_graph
from nnc.graph import Graph
from nnc.lower.kernels import references
from nnc.lower.kernels.references import tape_program


def halved(x: Any, limit: Any) -> Any:
    """A loop whose number of iterations depends on values."""
    return nnc.while_loop(
        lambda c: (c[0] > limit).any(), lambda c: (c[0] / 2 + 0.01 * nnp.sin(c[1]), c[1] * 0.9), (x, x)
    )


def around(x: Any) -> Any:
    """A scan of such loops, with work before and behind each."""

    def body(carry: Any, limit: Any) -> Any:
        a, b = halved(carry * 1.5, limit)
        return nnp.tanh(a + b @ b), (a * b).sum()

    last, rows = nnc.scan(body, x, nnp.asarray([0.5, 0.3, 0.1]))
    return (last**2).sum() + rows.sum()


def within(x: Any) -> Any:
    """A loop of unknown length around another one."""
    return nnc.while_loop(lambda x: x.sum() > 0.5, lambda x: halved(x, 0.8)[0] * 0.7, x).sum()


@pytest.mark.parametrize("f", [around, within], ids=lambda f: f.__name__)
def test_gradients_of_nested_loops_are_those_of_single_commands(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.asarray([1.0, 2.0, 3.0])
    made: list[Graph] = []

    def watched(graph: Graph, lower_graph: Any, native: bool) -> Any:
        made.append(graph)
        fast = tape_program(graph, lower_graph, native)

        def run(values: Any) -> Any:
            found, wanted = fast(values), run_graph(graph, values)
            for symbol, a, b in zip(graph.outputs, found, wanted, strict=True):
                if symbol.dtype != TAPE:
                    np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)
            return found

        return run

    monkeypatch.setattr("nnc.compiled.pipeline.tape_program", watched)
    expected = nnc.grad(f)(x)
    np.testing.assert_allclose(np.asarray(nnc.compile(nnc.grad(f))(x)), np.asarray(expected), rtol=1e-12)
    numbers = [float(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(np.asarray(expected), numbers, rtol=1e-6)
    assert made and any(references._has_tapes(node) for graph in made for node in graph.nodes)


def test_a_refusal_within_names_the_users_line() -> None:
    def f(x: Any) -> Any:
        def body(carry: Any, i: Any) -> Any:
            halves = nnc.while_loop(lambda c: c > 1, lambda c: c / 2, carry)
            return halves * x[i], None  # the line of the error

        return nnc.scan(body, x[0], np.asarray([0, 1, 7]))[0]

    with pytest.raises(nnc.errors.OutOfBoundsError, match="the line of the error"):
        nnc.compile(nnc.grad(f))(np.asarray([3.0, 5.0]))
