"""Tensors that share memory: chains in place, results, donated arguments, parts of joined tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.compiled.pipeline import plan_memory
from nnc.graph import Graph, GraphBuilder, Symbol
from nnc.lower.plan.bind import bind_buffers
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Bound, Kind, Step
from nnc.run.program import Program
from tests.counting import count_calls

Agree = Callable[..., list[Any]]
Compile = Callable[..., Program]
Spec = tuple[tuple[int, ...], str]
F = "float32"


def record(make: Callable[..., Any], *specs: Spec) -> Graph:
    """The graph of a function that gets the builder and its inputs."""
    b = GraphBuilder()
    results = make(b, *(b.input(*spec) for spec in specs))
    return b.build(*(results if isinstance(results, tuple) else (results,)))


def bound(graph: Graph, *donated: int) -> Bound:
    return bind_buffers(graph, Options(donated=donated))


def names(steps: Sequence[Step]) -> list[str]:
    return [step.command.name for step in walk(steps)]


def in_place(found: Bound) -> list[str]:
    """The commands that write over one of their inputs."""
    reads = {id(step): {view.buffer for view in step.inputs} for step in found.steps}
    return [step.command.name for step in found.steps if step.outputs and step.outputs[0].buffer in reads[id(step)]]


def kinds(found: Bound) -> list[Kind]:
    """The kind of the memory that each step writes."""
    return [found.buffers[view.buffer].kind for step in found.steps for view in step.outputs]


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=F).reshape(shape) / 8


# -- in place ----------------------------------------------------------------------------------------------------------


def test_a_chain_of_elementwise_commands_stays_in_the_memory_of_its_result() -> None:
    found = bound(record(lambda b, x: b.add("exp", b.add("neg", b.add("exp", x))), ((2,), F)))
    assert kinds(found) == [Kind.OUTPUT] * 3
    assert in_place(found) == ["neg", "exp"]
    assert len(found.buffers) == 2


def test_nothing_is_written_over_arguments_constants_results_or_tensors_that_are_read_later() -> None:
    def make(b: GraphBuilder, x: Symbol) -> Any:
        a = b.add("add", x, b.constant([1.0, 2.0], F))
        returned = b.add("neg", a)
        return returned, b.add("mul", b.add("exp", returned), a)

    found = bound(record(make, ((2,), F)))
    assert in_place(found) == ["mul"]
    assert Kind.INPUT not in kinds(found)
    assert Kind.CONSTANT not in kinds(found)


def test_a_view_that_is_read_later_keeps_its_base() -> None:
    def make(b: GraphBuilder, x: Symbol) -> Any:
        base = b.add("exp", x)
        view = b.add("transpose", base, permutation=(1, 0))
        return b.add("neg", base), b.add("neg", view)

    assert in_place(bound(record(make, ((2, 3), F)))) == []


def test_inputs_shown_in_another_order_are_not_overwritten(agree: Agree) -> None:
    def turned(b: GraphBuilder, x: Symbol) -> Any:
        return b.add("transpose", x, permutation=(1, 0))

    def both(b: GraphBuilder, x: Symbol) -> Any:
        base = b.add("exp", x)
        return b.add("add", base, turned(b, base))

    def alone(b: GraphBuilder, x: Symbol) -> Any:
        return b.add("neg", turned(b, b.add("exp", x)))

    def twice(b: GraphBuilder, x: Symbol) -> Any:
        base = b.add("exp", x)
        return b.add("add", base, base)

    for make, expected in ((both, []), (alone, []), (twice, ["add"])):
        graph = record(make, ((2, 2), F))
        assert in_place(bound(graph)) == expected
        agree(graph, ramp(2, 2))


def test_a_tensor_of_another_size_or_shape_is_no_place_for_a_result() -> None:
    def make(b: GraphBuilder, x: Symbol) -> Any:
        wide = b.add("convert", b.add("exp", x), dtype=np.dtype("float64"))
        return b.add("neg", wide)

    found = bound(record(make, ((2,), F)))
    assert "convert" not in in_place(found)


# -- results and arguments ---------------------------------------------------------------------------------------------


def test_a_donated_argument_may_be_written_over() -> None:
    graph = record(lambda b, x: b.add("neg", x), ((2,), F))
    assert (kinds(bound(graph)), bound(graph).donated) == ([Kind.OUTPUT], ())
    assert (kinds(bound(graph, 0)), bound(graph, 0).donated) == ([Kind.INPUT], (0,))


def test_a_donated_argument_that_is_read_later_is_not_written_over() -> None:
    found = bound(record(lambda b, x: (b.add("neg", x), b.add("exp", x)), ((2,), F)), 0)
    assert kinds(found) == [Kind.OUTPUT, Kind.INPUT]


def test_results_that_are_not_made_in_place_lie_in_donated_arguments_that_are_dead() -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        return b.add("cumsum", b.add("exp", x), axis=0), b.add("cumsum", b.add("exp", y), axis=0)

    found = bound(record(make, ((3,), F), ((3,), F)), 0, 1)
    assert found.donated == (0, 1)
    assert found.buffers[found.outputs[1].buffer].kind is Kind.INPUT  # both are busy until the first result is there
    found = bound(record(lambda b, x: b.add("cumsum", x, axis=0), ((3,), F)), 0)  # reads x while it writes
    assert found.donated == ()
    found = bound(record(lambda b, x: b.add("convert", b.add("exp", x), dtype=np.dtype("int32")), ((3,), F)), 0)
    assert kinds(found)[-1] is Kind.OUTPUT  # arguments are memory for results of their own dtype


def test_each_donated_argument_serves_one_result(compile_graph: Compile) -> None:
    graph = record(lambda b, x: (b.add("neg", x), b.add("neg", x), x, x), ((3,), F))
    program = compile_graph(graph, donated=(0,))
    results = program.run([ramp(3)])
    for result, sign in zip(results, (-1, -1, 1, 1), strict=True):
        np.testing.assert_array_equal(result, sign * ramp(3))
    assert len({x.__array_interface__["data"][0] for x in results}) == 4


def test_results_without_memory_of_their_own_are_copied(agree: Agree) -> None:
    def make(b: GraphBuilder, x: Symbol) -> Any:
        s = b.add("exp", x)
        return s, s, b.add("transpose", s, permutation=(1, 0)), x, b.constant([1.0], F)

    graph = record(make, ((2, 3), F))
    found = bound(graph)
    assert sorted(names(found.steps)) == ["copy"] * 4 + ["exp"]
    assert kinds(found) == [Kind.OUTPUT] * 5
    agree(graph, ramp(2, 3))
    assert names(bound(record(lambda b, x: b.add("reshape", b.add("exp", x), shape=(6,)), ((2, 3), F))).steps) == [
        "exp"
    ]


def test_branches_write_where_their_results_are_wanted(agree: Agree) -> None:
    branches = tuple(
        record(lambda b, x, y, name=name: (b.add("cumsum", b.add(name, x), axis=0), y), ((4,), F), ((4,), F))
        for name in ("exp", "neg")
    )
    graph = record(lambda b, i, x, y: b.add("case_of", i, x, y, graphs=branches), ((), "int64"), ((4,), F), ((4,), F))
    found = bound(graph)
    assert sorted(names(found.steps)) == [
        "case_of",
        "copy",
        "copy",
        "cumsum",
        "cumsum",
        "exp",
        "neg",
    ]  # y is an argument
    for index in (0, 1):
        agree(graph, np.asarray(index), ramp(4), ramp(4))


def test_results_that_branches_yield_in_different_orders_have_two_places(agree: Agree) -> None:
    turns = [
        lambda b, x: x,
        lambda b, x: b.add("transpose", x, permutation=(1, 0)),
        lambda b, x: b.add("flip", x, axes=(0,)),
    ]
    branches = tuple(record(turn, ((2, 2), F)) for turn in turns)

    def make(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        return b.add("case_of", i, b.add("exp", x), graphs=branches)

    for index in range(3):
        agree(record(make, ((), "int64"), ((2, 2), F)), np.asarray(index), ramp(2, 2))


# -- joins -------------------------------------------------------------------------------------------------------------


def joined(b: GraphBuilder, axis: int, *parts: Symbol) -> Any:
    return b.add("concatenate", *parts, axis=axis)


def summed(b: GraphBuilder, x: Symbol) -> Any:
    return b.add("cumsum", x, axis=0)


def window(b: GraphBuilder, x: Symbol, start: tuple[int, ...], limit: tuple[int, ...]) -> Any:
    return b.add("slice", x, start=start, limit=limit, stride=(1,) * len(start))


def nested(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    inner = joined(b, 0, b.add("exp", x), b.add("tanh", y))
    return joined(b, 1, b.add("neg", inner), summed(b, joined(b, 0, b.add("exp", y), b.add("tanh", x))))


def deeply_nested(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    rows = joined(b, 0, b.add("exp", x), b.add("tanh", y))
    columns = joined(b, 1, summed(b, x), b.add("exp", y))
    return joined(b, 0, joined(b, 1, rows, b.add("neg", summed(b, rows))), joined(b, 0, columns, b.add("sin", columns)))


def used_again(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    part = b.add("exp", x)
    return summed(b, joined(b, 0, part, b.add("tanh", y))), summed(b, part)


def of_views(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    flat = b.add("reshape", summed(b, x), shape=(1, 8))
    return joined(b, 0, b.add("reshape", flat, shape=(2, 4)), b.add("exp", y))


def stacked(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    return joined(b, 1, *(b.add("reshape", b.add("exp", z), shape=(2, 1, 4)) for z in (x, y)))


def split(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
    whole = summed(b, joined(b, 0, b.add("exp", x), b.add("tanh", y)))
    return tuple(b.add("exp", window(b, whole, (at, 0), (at + 2, 4))) for at in (0, 2))


FREE = {
    "along the first axis": lambda b, x, y: joined(b, 0, b.add("exp", x), b.add("tanh", y)),
    "along an inner axis": lambda b, x, y: joined(b, 1, b.add("exp", x), b.add("tanh", y)),
    "joined again": nested,
    "joined again and again": deeply_nested,
    "a part that is used again": used_again,
    "reshaped": of_views,
    "stacked": stacked,
    "split": split,
}


@pytest.mark.parametrize("name", FREE)
def test_parts_are_written_in_place_within_the_joined_tensor(name: str, agree: Agree, compile_graph: Compile) -> None:
    graph = record(FREE[name], ((2, 4), F), ((2, 4), F))
    agree(graph, ramp(2, 4), -ramp(2, 4))
    allowed = 1 if name == "joined again and again" else 0  # `rows` is a part of one, and read by another
    assert len({"concatenate", "copy"} & set(names(compile_graph(graph).bound.steps))) <= allowed


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_joins_that_begin_with_one_another_are_one_piece_of_memory(flat: bool, axis: int) -> None:
    """All layers read the outputs of earlier ones, again in the backward pass, as in the blocks of a DenseNet."""

    def blocks(x: Any) -> Any:
        made, whole, read = [x], x, []
        for _ in range(5):
            made.append(nnp.cumsum(nnp.tanh(whole), axis=1 - axis))
            whole = nnp.concatenate(made, axis=axis) if flat else nnp.concatenate([whole, made[-1]], axis=axis)
            read.append(whole)
        return sum(nnp.sum(nnp.cumsum(part, axis=0) ** 2) / part.size for part in reversed(read))

    def fun(x: Any) -> Any:
        return blocks(nnp.cumsum(x, axis=0))

    x = (ramp(2, 4) / 4).astype(F)
    f = nnc.compile(fun)
    np.testing.assert_allclose(f(x), fun(nnp.asarray(x)), rtol=1e-5)
    steps = f.lower(x).compile()._program.bound.steps
    assert not {"concatenate", "copy"} & set(names(steps))


def test_a_view_with_steps_lies_in_a_part_of_a_join(agree: Agree, compile_graph: Compile) -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        part = summed(b, x)
        some = b.add("slice", part, start=(1, 0), limit=(6, 4), stride=(3, 2))
        whole = joined(b, 1, part, b.add("tanh", y))
        return b.add("exp", some), summed(b, whole)

    graph = record(make, ((6, 4), F), ((6, 3), F))
    agree(graph, ramp(6, 4), -ramp(6, 3))
    assert not {"concatenate", "copy"} & set(names(compile_graph(graph).bound.steps))


@st.composite
def joining(draw: st.DrawFn) -> tuple[Graph, int]:
    """A graph of joins of joins, elementwise commands and sums, many of which are read late, and the number of its rows."""
    b, rows = GraphBuilder(), draw(st.integers(1, 3))
    x = b.input((rows, 3), F)
    made, read = [b.add("cumsum", x, axis=0)], []
    for _ in range(draw(st.integers(3, 9))):
        kind = draw(st.sampled_from(["join", "join", "join", "tanh", "neg", "cumsum"]))
        if kind == "join":
            parts = draw(st.lists(st.sampled_from(made[-4:]), min_size=1, max_size=2))
            parts = parts if draw(st.booleans()) else [made[-1], *parts]
            made.append(joined(b, 1, *parts))
        else:
            params = {"axis": 1} if kind == "cumsum" else {}
            made.append(b.add(kind, draw(st.sampled_from(made[-4:])), **params))
        if made[-1].shape[1] > 60:
            made.pop()
        if draw(st.booleans()):
            read.append(draw(st.sampled_from(made)))
    return b.build(*[b.add("sin", part) for part in (*read, made[-1])]), rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it holds no state
@given(made=joining())
def test_joins_of_joins_hold_all_parts(made: tuple[Graph, int], agree: Agree) -> None:
    graph, rows = made
    agree(graph, ramp(rows, 3), tolerance=1e-4)


def test_arguments_constants_and_second_uses_of_a_part_are_copied_into_a_join(agree: Agree) -> None:
    def make(b: GraphBuilder, x: Symbol) -> Any:
        part = b.add("exp", x)
        return joined(b, 0, part, x, b.constant(np.ones((1, 4)), F), part)

    graph = record(make, ((2, 4), F))
    assert names(bound(graph).steps) == ["exp", "copy", "copy", "copy"]
    agree(graph, ramp(2, 4))


def test_a_join_that_is_folded_and_joined_again_lies_where_its_own_parts_fit(agree: Agree) -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        columns = [b.add("reshape", b.add(name, x), shape=(2, 2, 1)) for name in ("exp", "tanh")]
        folded = b.add("reshape", joined(b, 2, *columns), shape=(2, 4))
        return joined(b, 1, folded, y)

    agree(record(make, ((2, 2), F), ((2, 1), F)), ramp(2, 2), ramp(2, 1))


def test_a_part_that_is_turned_along_an_inner_axis_is_copied(agree: Agree) -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        part = b.add("exp", x)
        turned = b.add("transpose", part, permutation=(1, 0))
        return joined(b, 1, turned, y), joined(b, 1, b.add("reshape", turned, shape=(4, 2)), b.add("tanh", y))

    agree(record(make, ((2, 4), F), ((4, 3), F)), ramp(2, 4), ramp(4, 3))


def test_elements_that_no_part_covers_are_zero(agree: Agree, compile_graph: Compile) -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        parts = b.add("exp", x), b.add("tanh", y)
        return b.add("assemble", *parts, shape=(5, 6), starts=((0, 1), (3, 2)), dtype=np.dtype(F))

    graph = record(make, ((2, 4), F), ((2, 4), F))
    for _ in range(2):
        agree(graph, ramp(2, 4), ramp(2, 4))
    assert not {"assemble", "copy"} & set(names(compile_graph(graph).bound.steps))
    program = compile_graph(record(lambda b, x, y: b.add("neg", make(b, x, y)), ((2, 4), F), ((2, 4), F)))
    for at in (1, 5):  # the memory is dirty the second time
        program.run([ramp(2, 4) * at, ramp(2, 4)])
        (result,) = program.run([ramp(2, 4), ramp(2, 4)])
        assert np.count_nonzero(result) == 16


def test_a_part_is_not_overwritten_through_the_whole_while_it_is_read(agree: Agree) -> None:
    def over_whole(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        part = b.add("exp", x)
        whole = joined(b, 0, part, b.add("tanh", y))
        return summed(b, b.add("add", whole, b.add("broadcast_to", part, shape=(4, 3))))

    def over_part(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        part = b.add("exp", x)
        whole = joined(b, 0, part, b.add("tanh", y))
        other = b.add("flip", window(b, whole, (0, 0), (1, 3)), axes=(1,))
        return summed(b, b.add("add", part, other)), summed(b, whole)

    for make in (over_whole, over_part):
        graph = record(make, ((1, 3), F), ((3, 3), F))
        agree(graph, ramp(1, 3), ramp(3, 3))
        for step in bound(graph).steps:
            if step.command.name == "add":
                x, y = step.inputs
                assert x.buffer != y.buffer


def test_branches_that_join_other_parts_into_one_result_keep_them_apart(agree: Agree) -> None:
    def rows(b: GraphBuilder, x: Symbol, y: Symbol, z: Symbol) -> Any:
        return joined(b, 0, joined(b, 0, x, y), b.add("cumsum", z, axis=1))

    def columns(b: GraphBuilder, x: Symbol, y: Symbol, z: Symbol) -> Any:
        left = joined(b, 0, z, x, b.add("neg", z))
        return joined(b, 1, window(b, summed(b, left), (0, 0), (3, 2)), window(b, left, (0, 2), (3, 4)))

    def other_rows(b: GraphBuilder, x: Symbol, y: Symbol, z: Symbol) -> Any:
        return joined(b, 0, y, joined(b, 1, window(b, x, (0, 0), (1, 2)), window(b, z, (0, 0), (1, 2))), x)

    def of_x(b: GraphBuilder, x: Symbol, y: Symbol, z: Symbol) -> Any:
        return joined(b, 0, x, *(b.add("cumsum", b.add(name, x), axis=1) for name in ("sin", "neg")))

    def of_y(b: GraphBuilder, x: Symbol, y: Symbol, z: Symbol) -> Any:
        return joined(b, 0, y, *(b.add("cumsum", b.add(name, y), axis=1) for name in ("sin", "neg")))

    makers = (rows, columns, other_rows, of_x, of_y)
    for first in makers:
        for second in makers:
            branches = tuple(record(make, *(((1, 4), F),) * 3) for make in (first, second))

            def make(b: GraphBuilder, i: Symbol, *given: Symbol, branches: Any = branches) -> Any:
                taken = [b.add(name, x) for name, x in zip(("exp", "tanh", "sin"), given, strict=True)]
                return b.add("case_of", i, *taken, graphs=branches)

            graph = record(make, ((), "int64"), *(((1, 4), F),) * 3)
            for index in (0, 1):
                agree(graph, np.asarray(index), ramp(1, 4), -ramp(1, 4), ramp(1, 4) / 3)


def test_joins_in_loops_need_no_copies_between_rounds(agree: Agree, compile_graph: Compile) -> None:
    def body(b: GraphBuilder, number: Symbol, x: Symbol, h: Symbol) -> Any:
        whole = joined(b, 0, b.add("exp", x), b.add("tanh", h))
        return window(b, summed(b, whole), (1, 0), (3, 4)), b.add("neg", whole)

    round_ = record(body, ((), "int64"), ((1, 4), F), ((2, 4), F))

    def make(b: GraphBuilder, xs: Symbol, h: Symbol) -> Any:
        return b.add("scan", xs, h, graphs=(round_,), xs=1, carries=1, length=5)

    graph = record(make, ((5, 1, 4), F), ((2, 4), F))
    agree(graph, ramp(5, 1, 4) / 10, ramp(2, 4))
    assert "concatenate" not in names(compile_graph(graph).bound.steps)


@pytest.mark.parametrize("name", FREE)
def test_joins_never_make_the_arena_larger(name: str, compile_graph: Compile) -> None:
    graph = record(FREE[name], ((2, 4), F), ((2, 4), F))
    program = compile_graph(graph)
    apart = bind_buffers(graph, Options(), join=False)
    assert "concatenate" in names(apart.steps)
    assert program.arena_bytes <= plan_memory(apart, Options(verify_passes=True)).arena_bytes


def test_parts_stay_apart_where_joining_them_early_would_need_more_memory(agree: Agree, compile_graph: Compile) -> None:
    def make(b: GraphBuilder, x: Symbol, y: Symbol) -> Any:
        early = b.add("exp", window(b, x, (0,), (16,)))  # its place in the whole would be taken all the time
        large = summed(b, b.add("mul", y, b.add("broadcast_to", window(b, early, (0,), (1,)), shape=(4096,))))
        total = b.add("reduce_sum", b.add("sin", large), axes=(0,))
        rest = b.add("broadcast_to", total, shape=(4096,))
        return summed(b, joined(b, 0, early, b.add("exp", rest)))

    graph = record(make, ((16,), F), ((4096,), F))
    agree(graph, ramp(16) / 10, ramp(4096) / 4096, tolerance=1e-4)
    program = compile_graph(graph)
    joined_only, apart = (
        plan_memory(bind_buffers(graph, Options(), join=j), Options()).arena_bytes for j in (True, False)
    )
    assert program.arena_bytes <= min(joined_only, apart)


def test_twice_as_many_parts_are_placed_with_twice_the_calls() -> None:
    def graph(parts: int) -> Graph:
        return record(
            lambda b, *xs: b.add("concatenate", *(b.add("cumsum", x, axis=0) for x in xs), axis=0), *[((3,), F)] * parts
        )

    small, large = (count_calls(bind_buffers, graph(parts), Options()) for parts in (150, 300))
    assert names(bound(graph(150)).steps) == ["cumsum"] * 150
    assert large <= 2.2 * small
