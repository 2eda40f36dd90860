"""Reductions between processes are joined into buckets; tests/unit/distributed/on_processes.py runs the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.base.options import Options
from nnc.commands.collective import INDEX
from nnc.graph import Graph, GraphBuilder, Symbol, command, reference
from nnc.graph.verify import verify
from nnc.lower.passes.memory import buckets as module
from nnc.lower.passes.memory.buckets import buckets

PLACES: dict[str, Any] = {"size": 2, "axis_name": "data", "stride": 1}


class Program:
    """Builds a graph whose first input is the number of the place."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("program")
        self.index = self.builder.input((), INDEX.dtype)

    def input(self, *shape: int, dtype: str = "float32") -> Symbol:
        return self.builder.input(shape, dtype)

    def psum(self, x: Symbol, name: str = "psum", **more: Any) -> Symbol:
        return self.builder.add(name, x, self.index, **{**PLACES, **more})

    def add(self, name: str, *inputs: Symbol, **params: Any) -> Symbol:
        return self.builder.add(name, *inputs, **params)

    def joined(self, *outputs: Symbol) -> Graph:
        before = self.builder.build(*outputs)
        after = verify(buckets(before, Options()))
        assert [s.spec for s in after.outputs] == [s.spec for s in before.outputs]
        return after


def names(graph: Graph) -> list[str]:
    return [node.command.name for node in graph.nodes]


def sums(graph: Graph) -> list[int]:
    """The elements of each reduction."""
    return [node.outputs[0].spec.size for node in graph.nodes if node.command.name in ("psum", "pmax")]


def evaluated(graph: Graph, values: list[Any]) -> list[Any]:
    """The results where the other process has equal values, so that a sum is twice the operand."""
    known = dict(zip(graph.inputs, values, strict=True))
    for node in graph.nodes:
        inputs = [known[s] for s in node.inputs]
        params = dict(node.params)
        if node.command.name == "psum":
            del params["stride"]
        known[node.outputs[0]] = np.asarray(reference[node.command](*inputs, **params))
    return [known[s] for s in graph.outputs]


def test_independent_sums_are_one_and_have_their_results() -> None:
    p = Program()
    x, y, z = p.input(2, 3), p.input(4), p.input()
    a, b = p.psum(p.add("neg", x)), p.psum(p.add("exp", y))
    early = p.add("neg", a)  # a reader in front of the bucket
    c = p.psum(p.add("sin", z))
    graph = p.joined(a, b, c, early)
    assert sums(graph) == [11]
    values = [np.int32(0), np.arange(6.0).reshape(2, 3), np.arange(4.0), np.array(0.5)]
    values = [v.astype(np.float32) if v.dtype.kind == "f" else v for v in values]
    expected = [-2 * values[1], 2 * np.exp(values[2]), 2 * np.sin(values[3]), 2 * values[1]]
    for got, want in zip(evaluated(graph, values), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_that_depends_on_another_comes_later() -> None:
    p = Program()
    x, y, z = p.input(3), p.input(3), p.input(5)
    mean = p.psum(x)
    variance = p.psum(p.add("mul", mean, y))  # needs the first
    graph = p.joined(mean, variance, p.psum(z), p.psum(p.add("neg", variance)))
    assert sums(graph) == [8, 3, 3]


def test_other_processes_dtypes_and_kinds_have_buckets_of_their_own() -> None:
    p = Program()
    x, y = p.input(3), p.input(3, dtype="float64")
    found = [p.psum(x), p.psum(y), p.psum(p.add("neg", x), stride=2), p.psum(x, name="pmax"), p.psum(p.add("exp", x))]
    found.append(p.psum(p.add("sin", x), size=4))
    assert sorted(sums(p.joined(*found))) == [3, 3, 3, 3, 6]


def test_simulated_places_are_left_alone() -> None:
    p = Program()
    x = p.input(3)
    outputs = [p.builder.add("psum", p.add(name, x), p.index, size=2, axis_name="i") for name in ("neg", "exp")]
    graph = p.builder.build(*outputs)
    assert buckets(graph, Options()) is graph


def test_a_bucket_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", 40)
    p = Program()
    found = [p.psum(p.add("neg", p.input(n))) for n in (4, 4, 4, 100, 2, 2, 2)]
    assert sums(p.joined(*found)) == [8, 4, 100, 6]


def test_effects_keep_their_order() -> None:
    p = Program()
    x, y = p.input(3), p.input(3)
    a = p.psum(x)
    for operand, function in ((a, abs), (y, print), (p.add("neg", a), len)):
        p.builder.record(command("callback"), (operand,), {"function": function}, (), None)
    graph = p.joined(a, p.psum(p.add("neg", y)))
    assert sums(graph) == [6]
    assert [n.params["function"] for n in graph.nodes if n.command.name == "callback"] == [abs, print, len]


@pytest.mark.parametrize("seed", range(40))
def test_generated_programs_have_the_results_of_sums_by_themselves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", int(seed % 4 + 1) * 48)
    rng = np.random.default_rng(seed)
    p = Program()
    shapes = [(), (3,), (2, 3), (0,), (1, 1)]
    known = [p.input(*shapes[i % 5], dtype="float64" if rng.random() < 0.2 else "float32") for i in range(7)]
    inputs = list(known)
    for _ in range(40):
        x = known[rng.integers(len(known))]
        if rng.random() < 0.4:
            known.append(p.psum(x, **({"stride": 2} if rng.random() < 0.2 else {})))
        else:
            like = [y for y in known if y.spec == x.spec]
            known.append(p.add("sub", x, like[rng.integers(len(like))]))
    before = p.builder.build(*known[7:])
    after = verify(buckets(before, Options()))
    assert len(sums(after)) <= len(sums(before))
    values = [np.int32(0), *(rng.integers(-9, 9, s.shape).astype(s.dtype) for s in inputs)]
    for got, want in zip(evaluated(after, values), evaluated(before, values), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
