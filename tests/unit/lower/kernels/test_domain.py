"""Axes of tensors that are one loop, and axes that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, Symbol
from nnc.lower.kernels.domain import UNIT, Domain

X = np.ones((6, 6, 1), np.float32)
Y = np.ones((6, 1), np.float32)


def normalised(x: Any, y: Any) -> Any:
    """Reductions, broadcasts and views of a tensor of three axes."""
    centred = x - nnp.sum(x, axis=1, keepdims=True) / 6
    return centred * nnp.exp(y) / nnp.sum(nnp.square(centred), axis=1, keepdims=True)


def gathered(x: Any, y: Any) -> Any:
    """Rows that are read at computed places."""
    places = nnp.asarray([1, 4, 2, 0, 5], np.int64)
    return nnp.exp(x[places]) * nnp.tanh(y[places])[:, None]


def loops(domain: Domain, symbols: list[Symbol]) -> list[int]:
    """The loop of each axis, numbered in the order in which they are met."""
    found: dict[int, int] = {UNIT: UNIT}
    return [found.setdefault(label, len(found)) for symbol in symbols for label in domain.axes(symbol)]


@pytest.mark.parametrize("function", [normalised, gathered])
def test_two_halves_that_are_joined_have_the_loops_of_the_whole(function: Any) -> None:
    graph: Graph = nnc.make_graph(function)(X, Y)
    symbols = list(graph.symbols())
    whole = Domain.of(graph)
    for cut in range(len(graph.nodes) + 1):
        first, second = Domain.of_nodes(graph.nodes[:cut]), Domain.of_nodes(graph.nodes[cut:])
        for joined in (Domain.joined(first, second), Domain.joined(second, first)):
            assert loops(joined, symbols) == loops(whole, symbols)
            assert joined.is_sound() == whole.is_sound()
            assert sorted(joined.sizes[label] for label in joined.reduced) == sorted(
                whole.sizes[label] for label in whole.reduced
            )


def test_loops_that_turn_out_to_be_one_are_one_for_every_tensor() -> None:
    """A tensor that is added to its transpose has one loop for both axes, and so have all tensors from which it was made."""
    graph = nnc.make_graph(lambda x: (y := nnp.exp(x)) + nnp.tanh(y).T)(np.ones((4, 4), np.float32))
    domain = Domain.of_nodes(graph.nodes[:-1])
    assert domain.is_sound() and len(set(domain.axes(graph.inputs[0]))) == 2
    assert domain.extend(graph.nodes[-1])
    assert not domain.is_sound() and len(set(domain.axes(graph.inputs[0]))) == 1


def test_a_copy_grows_by_itself() -> None:
    graph = nnc.make_graph(lambda x: nnp.sum(nnp.exp(x), axis=0))(np.ones((4, 3), np.float32))
    domain = Domain.of_nodes(graph.nodes[:1])
    copy = domain.copy()
    assert copy.extend(graph.nodes[1])
    assert (len(copy.reduced), len(domain.reduced)) == (1, 0)
    assert copy.fits(graph.outputs) and domain.fits(graph.nodes[0].outputs)


def test_an_axis_of_one_element_that_is_stretched_is_no_loop() -> None:
    graph = nnc.make_graph(lambda x, y: x * y)(np.ones((6, 4), np.float32), np.ones((6, 1), np.float32))
    domain = Domain.of(graph)
    row, column = domain.axes(graph.outputs[0])
    assert UNIT not in (row, column)
    assert domain.axes(graph.inputs[1]) == (row, UNIT)
