from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import OutOfBoundsError
from nnc.graph import GraphBuilder
from tests.unit.lower.passes.tools import check_after, evaluate, names, run

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), -np.ones((2, 3), np.float32)
PASSES = ("dce", "fold", "simplify", "parts", "cse", "simplify", "dce")


def join(x: Any, y: Any) -> Any:
    return nnp.concatenate([x, y], axis=1)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, y: join(x, y)[:, :3], 0),
        (lambda x, y: join(x, y)[:, 4:6], 1),
        (lambda x, y: join(x, y)[:, 2:4], 2),
        (lambda x, y: join(x, y)[:, 3:6:2], 1),  # from the first to the last column of y
        (lambda x, y: nnp.concatenate(nnp.split(x, 3, axis=1), axis=1), 0),
        (lambda x, y: nnp.concatenate(nnp.split(x, 3, axis=1)[1:], axis=1), 1),
        (lambda x, y: nnp.concatenate([x[:, :1], x[:, 2:]], axis=1), 3),
        (lambda x, y: nnp.concatenate([x[0:1, 0:2], x[1:2, 1:3]]), 3),  # they follow one another, in other columns
        (lambda x, y: nnp.concatenate([x[0:1, 0:2], x[1:2, 0:3][:, :2]]), 1),
        (lambda x, y: join(join(x, y), x), 1),
        (lambda x, y: (join(x, y), nnp.concatenate([x, y, x], axis=1)), 2),
        (lambda x, y: join(x, y[:, :0]), 0),
        (lambda x, y: nnp.stack([x, y])[1], 0),
        (lambda x, y: nnp.zeros((2, 3), dtype="float32").at[:, :].set(y), 0),
    ],
)
def test_parts_are_read_where_they_were_made(function: Callable[..., Any], count: int) -> None:
    check_after(nnc.make_graph(function)(X, Y), PASSES, [X, Y], count)


def test_parts_of_zeros_are_left_out_and_a_whole_part_is_the_tensor() -> None:
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    base = b.tensor((2, 6), "float32")
    b.add("neg", x, out=b.alias(base, (0, 0), (2, 3)))
    b.add("full", shape=(2, 3), dtype=np.dtype("float32"), value=0.0, out=b.alias(base, (0, 3), (2, 3)))
    whole = b.tensor((2, 3), "float32")
    b.add("exp", x, out=b.alias(whole, (0, 0), (2, 3)))
    after = check_after(b.build(base, whole), PASSES, [X], 3)
    assert len(next(node for node in after.nodes if node.command.name == "assemble").inputs) == 1


def test_a_negative_zero_is_no_zero() -> None:
    b = GraphBuilder()
    base = b.tensor((4,), "float32")
    b.add("full", shape=(2,), dtype=np.dtype("float32"), value=-0.0, out=b.alias(base, (0,), (2,)))
    (node,) = (node for node in run(b.build(base), *PASSES).nodes if node.command.name == "assemble")
    assert len(node.inputs) == 1


def test_a_slice_at_a_known_place_is_an_ordinary_one() -> None:
    b = GraphBuilder()
    x, one, nine = b.input((4,), "float32"), b.constant(1, "int64"), b.constant(9, "int64")
    inside = b.add("dynamic_slice", x, one, sizes=(2,), mode="error")
    clipped = b.add("dynamic_slice", x, nine, sizes=(2,), mode="clip")
    graph = b.build(inside, clipped)
    assert names(check_after(graph, PASSES, [np.arange(4, dtype=np.float32)], 2)) == ["slice", "slice"]
    outside = GraphBuilder()
    x, nine = outside.input((4,), "float32"), outside.constant(9, "int64")
    stays = outside.build(outside.add("dynamic_slice", x, nine, sizes=(2,), mode="error"))
    assert names(run(stays, *PASSES)) == ["dynamic_slice"]


def test_values_that_are_overwritten_entirely_are_not_made() -> None:
    b = GraphBuilder()
    x, start = b.input((4,), "float32"), b.input((), "int64")
    nothing = b.add("full", shape=(4,), dtype=np.dtype("float32"), value=0)
    graph = b.build(b.add("dynamic_update_slice", nothing, b.add("neg", x), start, mode="clip"))
    assert names(check_after(graph, PASSES, [np.arange(4, dtype=np.float32), np.int64(2)], 1)) == ["neg"]


@pytest.mark.parametrize("name", ["dynamic_update_slice", "dynamic_slice"])
def test_a_place_that_is_unknown_is_looked_at_where_others_are_mistakes(name: str) -> None:
    """All of x is read or written, if the start is 0."""
    b = GraphBuilder()
    x, start = b.input((4,), "float32"), b.input((), "int64")
    whole = {"sizes": (4,)} if name == "dynamic_slice" else {}
    update = [] if name == "dynamic_slice" else [b.add("neg", x)]
    after = run(b.build(b.add(name, x, *update, start, mode="error", **whole)), *PASSES)
    assert name in names(after)
    numbers = np.arange(4, dtype=np.float32)
    assert evaluate(after, [numbers, np.int64(0)])[0].tolist() == (-numbers if update else numbers).tolist()
    with pytest.raises(OutOfBoundsError):
        evaluate(after, [numbers, np.int64(1)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (join(x, y), join(join(x, y), x), nnp.concatenate([x, y, x, y], axis=1)),
        lambda x, y: (
            nnp.concatenate([x, y], 1),
            nnp.concatenate([x, y, x], 1),
            join(nnp.concatenate([x, y, x], 1), y),
        ),
    ],
)
def test_a_join_begins_with_the_longest_one_that_is_read_elsewhere(function: Callable[..., Any]) -> None:
    graph = check_after(nnc.make_graph(function)(X, Y), PASSES, [X, Y], 3)
    first, second, third = (node for node in graph.nodes if node.command.name == "concatenate")
    assert second.inputs[0] is first.outputs[0] and third.inputs[0] is second.outputs[0]
    assert [len(node.inputs) for node in graph.nodes] == [2, 2, 2]


def test_joins_along_different_axes_are_not_taken_for_beginnings() -> None:
    def function(x: Any, y: Any) -> Any:
        return nnp.concatenate([x, y], axis=0), nnp.concatenate([x, y, y], axis=1)

    graph = check_after(nnc.make_graph(function)(X, Y), PASSES, [X, Y], 2)
    assert sorted(len(node.inputs) for node in graph.nodes) == [2, 3]
