from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.base.options import Options
from nnc.graph import Graph, GraphBuilder, register, run_passes
from nnc.graph.rules import Rules
from nnc.lower.phases import BEFORE_FUSION, names_of
from nnc.lower.plan.views import find_views


def run(graph: Graph, *names: str, **changes: Any) -> Graph:
    return run_passes(graph, names, Options(**changes), verify=True)


def commands(graph: Graph) -> list[str]:
    return [node.command.name for node in graph.nodes]


@pytest.fixture
def square() -> Graph:
    b = GraphBuilder("square")
    x = b.input((2,), "float32")
    two = b.constant([2.0, 2.0], "float32")
    return b.build(b.add("mul", b.add("mul", x, x), two), x)


def test_calls_are_inlined_each_with_symbols_of_its_own(square: Graph) -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    y, same = b.add("call", x, graphs=(square,))
    z, _ = b.add("call", y, graphs=(square,))
    graph = run(b.build(z, same), "inline_calls")
    assert commands(graph) == ["mul"] * 4
    assert len(graph.constants) == 2
    assert graph.outputs[1] is graph.inputs[0]


def test_calls_within_sub_graphs_are_inlined(square: Graph) -> None:
    inner = GraphBuilder("inner")
    u = inner.input((2,), "float32")
    middle = inner.build(inner.add("call", u, graphs=(square,))[0])
    b = GraphBuilder()
    x = b.input((2,), "float32")
    graph = b.build(*b.add("checkpoint", x, graphs=(middle,)))
    assert commands(run(graph, "inline_calls")) == ["mul", "mul"]


@pytest.mark.usefixtures("own_registries")
def test_barriers_are_inlined_by_their_own_pass_only(square: Graph) -> None:
    register(
        "test_barrier",
        Rules(infer=lambda *s, graphs, barrier: graphs[0].output_specs),
        arity=None,
        outputs=None,
        inlines=True,
    )
    b = GraphBuilder()
    y, _ = b.add("test_barrier", b.input((2,), "float32"), graphs=(square,), barrier=True)
    kept = run(b.build(y), "inline_calls")
    assert commands(kept) == ["test_barrier"]
    assert commands(run(kept, "inline_barriers")) == ["mul", "mul"]


def test_a_graph_without_calls_is_returned_as_it_is(square: Graph) -> None:
    graph = run(square, "inline_calls", "inline_barriers", "dce")
    assert graph.nodes is square.nodes


def test_unread_nodes_are_dropped() -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    unused = b.constant([1.0, 1.0], "float32")
    b.add("exp", b.add("add", x, unused))
    graph = run(b.build(b.add("neg", x)), "dce")
    assert commands(graph) == ["neg"]
    assert not graph.constants
    assert len(graph.inputs) == 1


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(("effect", "kept"), [("debug", True), ("random", False), (None, False)])
def test_effects_but_random_draws_are_kept(effect: str | None, kept: bool) -> None:
    register("test_effect", Rules(infer=lambda x: (), reference=lambda x: (), effect=effect), outputs=0)
    b = GraphBuilder()
    x = b.input((2,), "float32")
    b.add("test_effect", b.add("exp", x))
    inner = b.build(x)
    assert commands(run(inner, "dce")) == (["exp", "test_effect"] if kept else [])
    outer = GraphBuilder()
    y = outer.input((2,), "float32")
    outer.add("call", y, graphs=(inner,))
    assert commands(run(outer.build(y), "dce")) == (["call"] if kept else [])


Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("shape", "permutation", "target"),
    [
        ((2, 3, 4), (0, 1, 2), (4, 6)),
        ((2, 3, 4), (2, 0, 1), (4, 6)),
        ((2, 3, 4), (2, 0, 1), (2, 2, 6)),
        ((2, 3, 4), (2, 0, 1), (24,)),
        ((2, 3, 4), (1, 0, 2), (3, 8)),
        ((2, 3, 4), (1, 0, 2), (3, 2, 1, 2, 2)),
        ((1, 3, 1, 4), (2, 3, 0, 1), (4, 3, 1)),
        ((6, 1), (1, 0), (1, 2, 3)),
        ((2, 3), (1, 0), (6,)),
        ((1,), (0,), ()),
    ],
)
def test_a_reshape_is_a_view_exactly_where_numpy_needs_no_copy(shape: Shape, permutation: Shape, target: Shape) -> None:
    b = GraphBuilder()
    t = b.add("transpose", b.add("exp", b.input(shape, "float32")), permutation=permutation)
    out = b.add("reshape", t, shape=target)
    graph = b.build(out)
    view = find_views(graph)[out]
    base = np.zeros(shape, np.float32)
    expected = base.transpose(permutation).reshape(target)
    assert (view.base is not out) == np.shares_memory(base, expected)
    if view.base is not out:
        moved = [(n, a, e) for n, a, e in zip(target, view.strides, expected.strides, strict=True) if n > 1]
        assert all(a == e for _, a, e in moved)


def test_the_pipeline_logs_each_of_its_passes(square: Graph) -> None:
    assert [record.name for record in run(square, *names_of(BEFORE_FUSION)).attrs["passes"]] == list(
        names_of(BEFORE_FUSION)
    )
