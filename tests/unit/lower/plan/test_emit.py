"""Loops carry values without copies: how many copies of a round rotate, in how much memory, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.array.array import Array
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, GraphBuilder, Symbol, register
from nnc.graph.rules import InPlace, Rules
from nnc.lower.plan.emit import COPIES
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Kind, Loop, Step
from nnc.run.program import Program

pytestmark = pytest.mark.usefixtures("own_registries")
Make = Callable[[GraphBuilder, list[Symbol]], list[Symbol]]
SIZE = 16  # float64: two lines of the cache


@pytest.fixture(autouse=True)
def commands(own_registries: None) -> None:
    """Two that need their operands while they write, and `t_fold`, which may write over its first."""
    register("t_conv", Rules(infer=lambda *x: x[0], reference=lambda *x: np.cumsum(sum(x))[::-1] * 0.1), arity=None)
    register(
        "t_gates",
        Rules(infer=lambda x: x.update(shape=(2 * x.size,)), reference=lambda x: np.concatenate([x, 0.5 * x])),
    )
    register(
        "t_fold",
        Rules(
            infer=lambda *x: x[0],
            reference=lambda *x: sum(x) * 0.5,
            inplace=InPlace(((0, 0),)),
        ),
        arity=None,
    )


def conv(b: GraphBuilder, *x: Symbol) -> Symbol:
    return b.add("t_conv", *x)  # type: ignore[no-any-return]


def lstm(b: GraphBuilder, p: list[Symbol], cell: str) -> list[Symbol]:
    gates = b.add("t_gates", p[0])
    n = p[0].shape[0]
    low, high = (b.add("slice", gates, start=(at,), limit=(at + n,), stride=(1,)) for at in (0, n))
    c = b.add(cell, p[1], low, high)
    return [conv(b, c, high), c]


SHAPES: dict[
    str, tuple[int, int, int, Make]
] = {  # carried values, copies that rotate, places for values in the arena, the round
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
    "lstm cell": (2, 2, 4, lambda b, p: lstm(b, p, "t_conv")),
    "lstm cell, written over the old": (2, 1, 4, lambda b, p: lstm(b, p, "t_fold")),
}


def a_while(carries: int, make: Make, size: int = SIZE, again: bool = False) -> Graph:
    """A loop of as many iterations as its first input says; `again`: the initial carry is returned, too."""
    body = GraphBuilder("round")
    number, *carried, limit = (
        body.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries, ((), "int64")]
    )
    condition = body.add("less", number, limit)
    graph = body.build(condition, *make(body, carried))
    b = GraphBuilder("a while")
    limit, *given = (b.input(*s) for s in [((), "int64"), *[((size,), "float64")] * carries])
    start = [conv(b, x) for x in given]
    *results, iterations = b.add("while", *start, limit, graphs=(graph,), carries=carries, before=1)
    return b.build(*(conv(b, x) for x in results), *(start if again else ()), iterations)


def a_scan(carries: int, make: Make, length: int | None, size: int = SIZE, again: bool = False) -> Graph:
    """A loop of `length` iterations; of as many as its first input says where that is None."""
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
    """The copies that iterations make, or that stand between two iterations; not those where a loop ends."""
    iterations = [c for loop in loops(program) for c in loop.copies]
    last = {id(step) for c in iterations for step in c.leave}
    return [step for c in iterations for step in walk(c.steps) if step.command.name == "copy" and id(step) not in last]


def arguments(graph: Graph, iterations: int) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, s.shape) if s.ndim else np.asarray(iterations) for s in graph.input_specs]


def check(graph: Graph, program: Program, *trips: int) -> None:
    """The program agrees with the graph, for loops of so many iterations."""
    for iterations in trips:
        inputs = arguments(graph, iterations)
        expected = graph.evaluate([Array(x) for x in inputs])
        for result, wanted in zip(program.run(inputs), expected, strict=True):
            np.testing.assert_allclose(result, np.asarray(wanted), rtol=1e-10)


@pytest.mark.parametrize("name", SHAPES)
def test_a_while_rotates_in_as_few_copies_as_known_and_moves_nothing(name: str) -> None:
    carries, ring, places, make = SHAPES[name]
    graph = a_while(carries, make)
    program = compiled(graph)
    assert rings(program) == [ring]
    assert not moved(program)
    # rotating buffers are moved when the loop ends, some of it to one place more
    turns = "swap" in name or "rotate" in name or name == "lstm cell"
    assert program.arena_bytes == (places + turns) * SIZE * 8
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
    for length in (0, 1, 2, 3, 4, 7):
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
def test_the_initial_carry_can_be_read_after_the_loop(name: str, size: int) -> None:
    carries, ring, _, make = SHAPES[name]
    graph = a_while(carries, make, size, again=True)
    program = compiled(graph)
    (loop,) = loops(program)
    assert loop.first == (size * 8 >= 4096)  # small values are copied into the loop, others have a round of their own
    assert rings(program) == [ring]
    check(graph, program, 0, 1, 2, 3, 7)


def body_of(*specs: Any, make: Callable[..., Sequence[Symbol]]) -> Graph:
    """A sub-graph: `make` gets the builder and the inputs."""
    b = GraphBuilder("body")
    return b.build(*make(b, *(b.input(*spec) for spec in specs)))


ITERATION, VALUE = ((), "int64"), ((SIZE,), "float64")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 8])
def test_a_carried_value_that_is_also_a_row_is_written_once(length: int, reverse: bool) -> None:
    def make(b: GraphBuilder, number: Symbol, x: Symbol, h: Symbol) -> Sequence[Symbol]:
        h = conv(b, h, x)
        return h, h, conv(b, h)

    body = body_of(ITERATION, VALUE, VALUE, make=make)
    b = GraphBuilder()
    xs, h = b.input((length, SIZE), "float64"), b.input(*VALUE)
    last, *rows = b.add("scan", xs, h, graphs=(body,), xs=1, carries=1, length=length, reverse=reverse)
    graph = b.build(conv(b, last), *rows)
    program = compiled(graph)
    check(graph, program, 0)
    assert not moved(program)
    assert not length > 1 or [step.command.name for step in program.bound.steps] == ["scan", "t_conv"]
    for loop in loops(program):
        written = [view for step in loop.copies[-1].tail for view in step.outputs]
        assert [program.bound.buffers[view.buffer].kind for view in written] == [Kind.OUTPUT, Kind.OUTPUT]


def test_rows_that_are_views_constants_elements_or_one_another_are_written() -> None:
    def make(b: GraphBuilder, number: Symbol, x: Symbol, h: Symbol, w: Symbol) -> Sequence[Symbol]:
        new = b.add("flip", conv(b, h, x), axes=(0,))
        return new, x, new, new, h, w, number, b.constant([1.0, 2.0], "float64")

    for length in (1, 2, 5):
        body = body_of(ITERATION, VALUE, VALUE, VALUE, make=make)
        b = GraphBuilder()
        xs, h, w = b.input((length, SIZE), "float64"), b.input(*VALUE), b.input(*VALUE)
        graph = b.build(*b.add("scan", xs, h, w, graphs=(body,), xs=1, carries=1, length=length))
        check(graph, compiled(graph), 0)


def test_a_loop_may_carry_its_number_its_captured_values_elements_and_views() -> None:
    def make(b: GraphBuilder, number: Symbol, x: Symbol, *rest: Symbol) -> Sequence[Symbol]:
        before, a, c, _, w = rest
        other = b.add("flip", conv(b, a, x), axes=(0,))
        scale = b.add("broadcast_to", b.add("convert", before, dtype=np.dtype("float64")), shape=(SIZE,))
        return number, b.add("add", other, scale), x, w, b.add("flip", c, axes=(0,))

    body = body_of(ITERATION, VALUE, ITERATION, VALUE, VALUE, VALUE, VALUE, make=make)
    for length in (1, 2, 3, 6):
        b = GraphBuilder()
        xs, *given = b.input((length, SIZE), "float64"), *(b.input(*VALUE) for _ in range(4))
        results = b.add("scan", xs, b.constant(-1, "int64"), *given, graphs=(body,), xs=1, carries=4, length=length)
        graph = b.build(*results)
        check(graph, compiled(graph), 0)


def test_the_number_of_the_iteration_before_is_not_that_of_this_one() -> None:
    def make(b: GraphBuilder, number: Symbol, before: Symbol, x: Symbol, y: Symbol, limit: Symbol) -> Sequence[Symbol]:
        return b.add("less", number, limit), number, y, b.add("add", x, b.add("broadcast_to", before, shape=(3,)))

    row = ((3,), "int64")
    body = body_of(ITERATION, ITERATION, row, row, ITERATION, make=make)
    b = GraphBuilder()
    limit = b.input(*ITERATION)
    ones = b.add("full", shape=(3,), dtype=np.dtype("int64"), value=1)
    twos = b.add("full", shape=(3,), dtype=np.dtype("int64"), value=2)
    graph = b.build(*b.add("while", b.constant(7, "int64"), ones, twos, limit, graphs=(body,), carries=3, before=1))
    check(graph, compiled(graph), *range(6))


def permutation(*cycles: int) -> Graph:
    """A loop that does nothing but move its values around in cycles of these lengths."""
    order: list[int] = []
    for n in cycles:
        order += [len(order) + n - 1, *range(len(order), len(order) + n - 1)]
    return a_while(len(order), lambda b, p: [p[i] for i in order])


@pytest.mark.parametrize("cycles", [(2, 3), (3, 4), (1, 2, 5)])
def test_cycles_of_several_lengths_rotate_in_their_common_multiple(cycles: tuple[int, ...]) -> None:
    graph = permutation(*cycles)
    program = compiled(graph)
    assert rings(program) == [int(np.lcm.reduce(cycles))]
    assert not moved(program)
    check(graph, program, *range(8))


@pytest.mark.parametrize("cycles", [(3, 5, 7), (8, 9)])
def test_a_permutation_that_would_need_too_many_copies_moves_its_values(cycles: tuple[int, ...]) -> None:
    assert np.lcm.reduce(cycles) > COPIES
    graph = permutation(*cycles)
    program = compiled(graph)
    assert rings(program) == [1]
    assert 0 < len(moved(program)) <= 2 * sum(cycles)
    check(graph, program, 0, 1, 2, 7, 105)


@pytest.mark.parametrize(("carries", "ring"), [(30, 31), (COPIES, 1)])
def test_a_long_chain_rotates_as_long_as_copies_suffice(carries: int, ring: int) -> None:
    graph = a_while(carries, lambda b, p: [*p[1:], conv(b, p[0], p[3])])
    program = compiled(graph)
    assert rings(program) == [ring]
    assert bool(moved(program)) == (ring == 1)
    check(graph, program, 0, 1, 5, 70)


def test_loops_in_loops_rotate_each_by_itself() -> None:
    inner = body_of(ITERATION, VALUE, VALUE, make=lambda b, number, x, w: [conv(b, x, w)])

    def make(b: GraphBuilder, number: Symbol, x: Symbol, y: Symbol, limit: Symbol) -> Sequence[Symbol]:
        condition = b.add("less", number, limit)
        return condition, y, *b.add("scan", limit, x, y, graphs=(inner,), xs=0, carries=1, length=None)

    graph = body_of(ITERATION, VALUE, VALUE, ITERATION, make=make)
    b = GraphBuilder()
    limit, x, y = b.input(*ITERATION), b.input(*VALUE), b.input(*VALUE)
    x, y, _ = b.add("while", conv(b, x), conv(b, y), limit, graphs=(graph,), carries=2, before=1)
    outer = b.build(conv(b, x), conv(b, y))
    program = compiled(outer)
    assert rings(program)[1:] == [2] * (len(rings(program)) - 1)
    assert not moved(program)
    check(outer, program, *range(6))


def test_a_loop_in_a_branch_in_a_loop_is_right() -> None:
    inner = body_of(ITERATION, VALUE, VALUE, make=lambda b, number, x, w: [conv(b, x, w), b.add("neg", w)])

    def looped(b: GraphBuilder, x: Symbol, y: Symbol) -> Sequence[Symbol]:
        last, rows = b.add("scan", x, y, graphs=(inner,), xs=0, carries=1, length=3)
        return last, b.add("reduce_sum", rows, axes=(0,))

    branches = (body_of(VALUE, VALUE, make=looped), body_of(VALUE, VALUE, make=lambda b, x, y: [conv(b, y), x]))

    def make(b: GraphBuilder, number: Symbol, x: Symbol, y: Symbol, limit: Symbol) -> Sequence[Symbol]:
        condition = b.add("less", number, limit)
        which = b.add("remainder", number, b.constant(2, "int64"))
        return condition, *b.add("case_of", which, x, y, graphs=branches)

    graph = body_of(ITERATION, VALUE, VALUE, ITERATION, make=make)
    b = GraphBuilder()
    limit, x, y = b.input(*ITERATION), b.input(*VALUE), b.input(*VALUE)
    outer = b.build(*b.add("while", x, y, limit, graphs=(graph,), carries=2, before=1))
    check(outer, compiled(outer), *range(6))


def test_a_test_may_stand_in_the_middle_of_an_iteration() -> None:
    def make(b: GraphBuilder, number: Symbol, x: Symbol, y: Symbol, limit: Symbol) -> Sequence[Symbol]:
        seen = conv(b, x, y)
        condition = b.add("less", number, limit)
        return condition, conv(b, seen), x, seen

    graph = body_of(ITERATION, VALUE, VALUE, ITERATION, make=make)
    b = GraphBuilder()
    limit, x, y = b.input(*ITERATION), b.input(*VALUE), b.input(*VALUE)
    outer = b.build(*b.add("while", x, y, limit, graphs=(graph,), carries=2, before=2))
    program = compiled(outer)
    assert not moved(program)
    check(outer, program, *range(6))


def test_a_value_may_be_carried_twice() -> None:
    def make(b: GraphBuilder, p: list[Symbol]) -> list[Symbol]:
        new = conv(b, p[0], p[1])
        return [new, new, p[1]]

    graph = a_while(3, make)
    check(graph, compiled(graph), *range(6))
    for length in range(4):
        graph = a_scan(3, make, length)
        check(graph, compiled(graph), 0)
