"""Loops carry their values without copies: how many copies of a round rotate, what they need, and that they compute what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.array import Array
from nnc.backends.numpy_ref import choose_kernel
from nnc.commands.rules import InPlace
from nnc.graph import Graph, GraphBuilder, Symbol, register
from nnc.lower.liveness import walk
from nnc.lower.pipeline import lower
from nnc.lower.program import Program
from nnc.lower.stages import Loop, Step
from nnc.options import Options

pytestmark = pytest.mark.usefixtures("own_registries")
Make = Callable[[GraphBuilder, list[Symbol]], list[Symbol]]
SIZE = 16  # float64: two lines of the cache


@pytest.fixture(autouse=True)
def commands(own_registries: None) -> None:
    """`t_conv`, which needs its operands while it writes, and `t_fold`, which may write over its first."""
    register("t_conv", None, infer=lambda *x: x[0], reference=lambda *x: np.cumsum(sum(x))[::-1] * 0.1)
    register("t_fold", None, infer=lambda *x: x[0], reference=lambda *x: sum(x) * 0.5, inplace=InPlace(((0, 0),)))


def conv(b: GraphBuilder, *x: Symbol) -> Symbol:
    return b.add("t_conv", *x)  # type: ignore[no-any-return]


def lstm(b: GraphBuilder, p: list[Symbol], cell: str) -> list[Symbol]:
    gates = b.add("concatenate", conv(b, p[0]), conv(b, p[0]), axis=0)
    low, high = (b.add("slice", gates, start=(at,), limit=(at + SIZE,), stride=(1,)) for at in (0, SIZE))
    c = b.add(cell, p[1], low, high)
    return [conv(b, c, high), c]


SHAPES: dict[str, tuple[int, int, int, Make]] = {  # carried values, copies that rotate, places for values in the arena, the round
    "x = conv(x)": (1, 2, 2, lambda b, p: [conv(b, p[0])]),
    "x = pool(conv(x))": (1, 1, 2, lambda b, p: [conv(b, conv(b, p[0]))]),
    "x2 = x0 + conv(x1)": (2, 3, 4, lambda b, p: [p[1], conv(b, p[0], conv(b, p[1]))]),
    "x2 = x0 + conv(x1), written over x0": (2, 2, 3, lambda b, p: [p[1], b.add("t_fold", p[0], conv(b, p[1]))]),
    "x0, x1, x2 <- x1, x2, x3": (3, 4, 5, lambda b, p: [p[1], p[2], conv(b, p[0], conv(b, p[2]))]),
    "x[c] = conv(x[c - 4])": (4, 5, 5, lambda b, p: [p[1], p[2], p[3], conv(b, p[0])]),
    "swap": (2, 2, 2, lambda b, p: [p[1], p[0]]),
    "swap and chain": (3, 2, 4, lambda b, p: [p[1], p[0], conv(b, p[2])]),
    "rotate three and an operation": (3, 4, 4, lambda b, p: [p[1], p[2], conv(b, p[0])]),
    "rotate three beside an operation": (4, 3, 6, lambda b, p: [p[1], p[2], p[0], conv(b, p[3])]),
    "lstm cell": (2, 2, 5, lambda b, p: lstm(b, p, "t_conv")),
    "lstm cell, written over the old": (2, 1, 4, lambda b, p: lstm(b, p, "t_fold")),
}


def a_while(carries: int, make: Make, size: int = SIZE, again: bool = False) -> Graph:
    """A loop of as many rounds as its first input says; `again`: what the loop starts from is returned, too."""
    body = GraphBuilder("round")
    number, *carried, limit = (body.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries, ((), "int64")])
    condition = body.add("less", number, limit)
    graph = body.build(condition, *make(body, carried))
    b = GraphBuilder("a while")
    limit, *given = (b.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries])
    start = [conv(b, x) for x in given]
    *results, rounds = b.add("while", *start, limit, graphs=(graph,), carries=carries, before=1)
    return b.build(*(conv(b, x) for x in results), *(start if again else ()), rounds)


def a_scan(carries: int, make: Make, length: int | None, size: int = SIZE, again: bool = False) -> Graph:
    """A loop of `length` rounds; of as many as its first input says where that is None."""
    body = GraphBuilder("round")
    _, *carried = (body.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries])
    graph = body.build(*make(body, carried))
    b = GraphBuilder("a scan")
    count, *given = (b.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries])
    start = [conv(b, x) for x in given]
    operands = start if length is not None else [count, *start]
    results = b.add("scan", *operands, graphs=(graph,), xs=0, carries=carries, length=length)
    results = list(results) if isinstance(results, tuple) else [results]
    return b.build(*(conv(b, x) for x in results), *(start if again else ()))


def compiled(graph: Graph, **changes: Any) -> Program:
    return lower(graph, Options(verify_passes=True, **changes), choose_kernel)


def loops(program: Program) -> list[Loop]:
    return [step.region for step in walk(program.bound.steps) if isinstance(step.region, Loop)]


def rings(program: Program) -> list[int]:
    return [len(loop.copies) - loop.first for loop in loops(program)]


def moved(program: Program) -> list[Step]:
    """The copies that rounds make, or that stand between two rounds."""
    rounds = [c for loop in loops(program) for c in loop.copies]
    return [step for c in rounds for step in walk((*c.head, *c.tail, *c.turn)) if step.command.name == "copy"]


def arguments(graph: Graph, rounds: int) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, s.shape) if s.ndim else np.asarray(rounds) for s in graph.input_specs]


def check(graph: Graph, program: Program, *trips: int) -> None:
    """The program computes what the graph does, for loops of so many rounds."""
    for rounds in trips:
        inputs = arguments(graph, rounds)
        expected = graph.evaluate([Array(x) for x in inputs])
        for result, wanted in zip(program.run(inputs), expected, strict=True):
            np.testing.assert_allclose(result, np.asarray(wanted), rtol=1e-10)


@pytest.mark.parametrize("name", SHAPES)
def test_a_while_rotates_in_as_few_copies_as_known_and_moves_nothing(name: str) -> None:
    carries, ring, _, make = SHAPES[name]
    graph = a_while(carries, make)
    program = compiled(graph)
    assert rings(program) == [ring]
    assert not moved(program)
    check(graph, program, *range(10))


@pytest.mark.parametrize("name", SHAPES)
def test_a_scan_rotates_likewise_in_no_more_memory_than_is_live_at_once(name: str) -> None:
    carries, ring, places, make = SHAPES[name]
    program = compiled(a_scan(carries, make, 50))
    assert rings(program) == [ring]
    assert not [step for step in walk(program.bound.steps) if step.command.name == "copy"]
    assert program.arena_bytes == places * SIZE * 8
    odd = name == "rotate three beside an operation"  # two values that take turns need a third place in a ring of three
    assert program.memory_plan.lower_bound == (places - odd) * SIZE * 8
    for length in range(10):
        graph = a_scan(carries, make, length)
        program = compiled(graph)
        assert not moved(program)
        check(graph, program, 0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_scan_of_any_length_rotates_likewise(name: str) -> None:
    carries, ring, _, make = SHAPES[name]
    graph = a_scan(carries, make, None)
    program = compiled(graph)
    assert rings(program) == [ring]
    assert not moved(program)
    check(graph, program, *range(10))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [SIZE, 512])
def test_what_a_loop_starts_from_can_be_read_after_it(name: str, size: int) -> None:
    carries, ring, _, make = SHAPES[name]
    if name.startswith("lstm") and size != SIZE:
        pytest.skip("the cell is of one size")
    graph = a_while(carries, make, size, again=True)
    program = compiled(graph)
    (loop,) = loops(program)
    assert loop.first == (size * 8 >= 4096)  # small values are copied into the loop, others have a round of their own
    assert rings(program) == [ring]
    check(graph, program, 0, 1, 2, 3, 7)
