"""`shard_map`: parts, results and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.distributed import Mesh, PartitionSpec, make_mesh, shard_map
from tests.unit.trace.core import collective_cases as cases
from tests.unit.trace.core.test_collectives import EXPECTED, OPS, same

P = PartitionSpec
GRID = make_mesh((2, 3), ("a", "b"), simulated=True)
X = np.arange(144.0).reshape(6, 24)
SPECS = [
    P(),
    P("a"),
    P("b", "a"),
    P(None, "b"),
    P(("a", "b")),
    P(("b", "a"), None),
    P("b", ("a",)),
    P(None, ("b", "a")),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_parts_are_put_together_as_they_were_split(spec: PartitionSpec) -> None:
    same(shard_map(lambda x: x, mesh=GRID, in_specs=spec, out_specs=spec)(X), X)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_each_place_gets_the_part_of_its_numbers(spec: PartitionSpec) -> None:
    seen = shard_map(lambda x: x[None, None], mesh=GRID, in_specs=spec, out_specs=P("a", "b"))(X)
    for a in range(2):
        for b in range(3):
            block = X
            for axis, names in enumerate(spec.names):
                number, count = 0, 1
                for name in names:
                    number, count = number * GRID.shape[name] + {"a": a, "b": b}[name], count * GRID.shape[name]
                block = np.split(block, count, axis=axis)[number]
            same(np.asarray(seen)[a, b], block)


def test_results_follow_a_tree_of_specs() -> None:
    def f(tree: Any, w: Any) -> Any:
        return {"sum": nnc.psum(tree["x"] * w, "a"), "same": (w, tree["y"])}, tree["x"].sum(1)

    in_specs = ({"x": P("a"), "y": P()}, P())
    out_specs = ({"sum": P(), "same": P()}, P("a"))
    found = shard_map(f, mesh=GRID, in_specs=in_specs, out_specs=out_specs)({"x": X, "y": X[0]}, 2.0)
    same(found[0]["sum"], 2 * (X[:3] + X[3:]))
    same(found[0]["same"][0], 2)
    same(found[0]["same"][1], X[0])
    same(found[1], X.sum(1))


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_results_are_those_of_a_named_axis(case: cases.Case) -> None:
    mesh = make_mesh((2,), ("i",), simulated=True)

    def place(x: Any) -> Any:
        return tuple(y[None] for y in cases.results(OPS, case, nnp.asarray(cases.W), x[0]))

    found = nnc.compile(shard_map(place, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(cases.X)
    for got, want in zip(found, EXPECTED[case.__name__], strict=True):
        same(got, want)


def test_derivatives_of_the_whole_pass_through() -> None:
    w = nnp.asarray(np.array([0.5, -1.0, 2.0]))
    x = np.arange(12.0).reshape(4, 3) / 7
    mesh = make_mesh((2,), ("data",), simulated=True)

    def loss(w: Any) -> Any:
        return shard_map(
            lambda w, x: nnc.psum((nnp.tanh(x @ w) ** 2).sum(), "data"), mesh=mesh, in_specs=(P(), P("data")), out_specs=P()
        )(w, x)  # fmt: skip

    def plain(w: Any) -> Any:
        return (nnp.tanh(x @ w) ** 2).sum()

    for transform in (nnc.grad, nnc.hessian):
        same(transform(loss)(w), transform(plain)(w))


def test_a_mesh_of_one_place_needs_no_simulation() -> None:
    found = shard_map(lambda x: nnc.psum(x, "a") * 2, mesh=make_mesh((1,), ("a",)), in_specs=P("a"), out_specs=P())(X)
    same(found, 2 * X)


def test_meshes_nest_in_named_axes() -> None:
    mesh: Mesh = make_mesh((2,), ("b",), simulated=True)
    inner = shard_map(lambda x: nnc.psum(nnc.psum(x, "b"), "i"), mesh=mesh, in_specs=P("b"), out_specs=P())
    found = nnc.vmap(inner, axis_name="i")(X)
    same(found[2], X.sum(0)[:12] + X.sum(0)[12:])
