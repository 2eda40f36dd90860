"""Commands and graphs that several tests of the graph layer use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nnc.commands.elementwise
import nnc.commands.shape  # noqa: F401  (registers the commands that the tests use)
from nnc.graph import Command, Graph, GraphBuilder, TensorSpec, register
from nnc.graph.rules import Rules


@pytest.fixture
def new_command(own_registries: None) -> Callable[..., Command]:
    """Registers commands, which are forgotten after the test."""
    return register


@pytest.fixture
def call(new_command: Callable[..., Command]) -> Command:
    """A command that calls its sub-graph."""

    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...]) -> tuple[TensorSpec, ...]:
        return graphs[0].output_specs

    return new_command("test_call", Rules(infer=infer), arity=None, outputs=None)


@pytest.fixture
def gather_all(new_command: Callable[..., Command]) -> Command:
    """A command that takes any number of inputs of one spec."""
    return new_command("test_gather_all", Rules(infer=lambda *specs, **params: specs[0]), arity=None)


@pytest.fixture
def squares() -> Graph:
    """(x + y) * (x + y) with a constant: two inputs, three nodes."""
    b = GraphBuilder("squares")
    x, y = b.input((2, 3), "float32", name="x"), b.input((2, 3), "float32")
    c = b.constant([[1, 2, 3], [4, 5, 6]], "float32", name="weights")
    s = b.add("add", x, y)
    return b.build(b.add("mul", b.add("mul", s, s), c))
