"""Fixtures of the graph tests: commands, passes and records that exist for one test only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nnc.commands.elementwise
import nnc.commands.shape  # noqa: F401  (registers the commands that the tests use)
from nnc.graph import ATTRIBUTES, COMMANDS, PASSES, Command, Graph, GraphBuilder, TensorSpec, register
from nnc.graph.serialize import RECORDS


@pytest.fixture
def new_command() -> Iterator[Callable[..., Command]]:
    """Registers commands, which are forgotten after the test."""
    before = set(COMMANDS)
    yield register
    for name in set(COMMANDS) - before:
        del COMMANDS[name]
        for column in ATTRIBUTES.values():
            column._cells.pop(name, None)


@pytest.fixture
def call(new_command: Callable[..., Command]) -> Command:
    """A command that calls its sub-graph."""

    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...]) -> tuple[TensorSpec, ...]:
        return graphs[0].output_specs

    return new_command("test_call", None, None, infer=infer)


@pytest.fixture
def gather_all(new_command: Callable[..., Command]) -> Command:
    """A command that takes any number of inputs of one spec."""
    return new_command("test_gather_all", None, 1, infer=lambda *specs, **params: specs[0])


@pytest.fixture(autouse=True)
def forget_passes_and_records() -> Iterator[None]:
    """Drops the passes and storable classes that a test adds."""
    tables: tuple[dict[str, Any], ...] = (PASSES, RECORDS)
    before = [set(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        for name in set(table) - names:
            del table[name]


@pytest.fixture
def squares() -> Graph:
    """(x + y) * (x + y) with a constant: two inputs, three nodes."""
    b = GraphBuilder("squares")
    x, y = b.input((2, 3), "float32", name="x"), b.input((2, 3), "float32")
    c = b.constant([[1, 2, 3], [4, 5, 6]], "float32", name="weights")
    s = b.add("add", x, y)
    return b.build(b.add("mul", b.add("mul", s, s), c))
