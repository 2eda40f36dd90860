"""Sums over axes come before sums between processes; tests/unit/distributed/on_processes.py runs the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.base.options import Options
from nnc.commands.collective import INDEX
from nnc.graph.verify import verify
from nnc.lower.passes.memory.sum_locally import sum_locally
from tests.unit.lower.passes.memory.test_buckets import PLACES, Program, evaluated, names, sums


def local(p: Program, *outputs: Any) -> tuple[Any, Any]:
    """The graph of the outputs, before and after."""
    before = p.builder.build(*outputs)
    return before, verify(sum_locally(before, Options()))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_a_sum_over_axes_comes_before_the_message(axes: tuple[int, ...]) -> None:
    p = Program()
    x = p.input(2, 3, 4)
    before, after = local(p, p.add("reduce_sum", p.psum(p.add("sin", x)), axes=axes))
    assert names(after) == ["sin", "reduce_sum", "psum"]
    assert sums(after) == [np.sum(np.ones((2, 3, 4)), axis=axes).size] and sums(before) == [24]
    values = [np.int32(0), np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)]
    for got, want in zip(evaluated(after, values), evaluated(before, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_one_sum_after_another_comes_before_the_message() -> None:
    p = Program()
    inner = p.add("reduce_sum", p.psum(p.input(2, 3)), axes=(0,))
    _, after = local(p, p.add("reduce_sum", inner, axes=(0,)))
    assert names(after) == ["reduce_sum", "reduce_sum", "psum"] and sums(after) == [1]


def test_a_sum_of_two_sums_is_one_message() -> None:
    p = Program()
    x, y, z = p.input(2, 3), p.input(2, 3), p.input(3)
    both = p.add("reduce_sum", p.add("add", p.psum(x), p.psum(p.add("sin", y))), axes=(0,))
    before, after = local(p, p.add("add", both, p.psum(z)))
    assert names(after) == ["sin", "add", "reduce_sum", "add", "psum"] and sums(after) == [3]
    values = [np.int32(0), *(np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((2, 3), (2, 3), 3))]
    np.testing.assert_allclose(evaluated(after, values)[0], evaluated(before, values)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind", ["of other processes", "of another process", "twice the same", "of one", "read elsewhere"]
)
def test_other_sums_of_two_stay(kind: str) -> None:
    p = Program()
    x, y = p.input(2, 3), p.input(2, 3)
    first = p.psum(x)
    second = {
        "of other processes": lambda: p.psum(y, stride=2), "twice the same": lambda: first, "of one": lambda: y,
        "of another process": lambda: p.builder.add("psum", y, p.builder.input((), INDEX.dtype), **PLACES),
    }.get(kind, lambda: p.psum(y))()  # fmt: skip
    outputs = [p.add("add", first, second), *([second] if kind == "read elsewhere" else [])]
    before, after = local(p, *outputs)
    assert after is before


@pytest.mark.parametrize("kind", ["read twice", "a result", "a maximum", "the largest", "one process"])
def test_other_sums_stay(kind: str) -> None:
    p = Program()
    x = p.input(2, 3)
    if kind == "one process":
        total = p.builder.add("psum", x, p.index, size=2, axis_name="data")
    else:
        total = p.psum(x, "pmax" if kind == "a maximum" else "psum")
    outputs = [p.add("reduce_max" if kind == "the largest" else "reduce_sum", total, axes=(0,))]
    if kind == "read twice":
        outputs.append(p.add("neg", total))
    if kind == "a result":
        outputs.append(total)
    before, after = local(p, *outputs)
    assert after is before


@pytest.mark.parametrize("seed", range(60))
def test_generated_programs_have_the_same_results_and_send_no_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = Program()
    known = [p.input(*shape) for shape in [(2, 3), (0, 2), (1, 1, 4), (5,), ()]]
    inputs, results = list(known), list(known)
    for _ in range(30):
        x = known[rng.integers(len(known))]
        kind = rng.random()
        if kind < 0.4:
            made = p.psum(x, **({"stride": 2} if rng.random() < 0.2 else {}))
        elif kind < 0.8:
            axes = tuple(axis for axis in range(x.spec.ndim) if rng.random() < 0.5)
            made = p.add("reduce_sum", x, axes=axes)
        elif kind < 0.9:
            made = p.add("add", x, _other(known, x, rng))
        else:
            made = p.add("neg", x)
        known.append(made)
        if rng.random() < 0.3:
            results.append(made)
    before, after = local(p, *results, known[-1])
    assert sum(sums(after)) <= sum(sums(before)) and len(sums(after)) <= len(sums(before))
    values = [np.int32(0), *(rng.integers(-9, 9, s.shape).astype(s.dtype) for s in inputs)]
    for got, want in zip(evaluated(after, values), evaluated(before, values), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)  # sums of small whole numbers are exact in any order
    assert after is not before or not any(
        node.command.name == "reduce_sum" and known_psum(before, node.inputs[0]) for node in before.nodes
    )


def _other(known: list[Any], x: Any, rng: Any) -> Any:
    """One of the values that have the spec of another."""
    alike = [other for other in known if other.spec == x.spec]
    return alike[rng.integers(len(alike))]


def known_psum(graph: Any, symbol: Any) -> bool:
    """Whether a value is a sum of elements over processes that one node alone reads."""
    reads = sum(symbol in node.inputs for node in graph.nodes) + sum(symbol is s for s in graph.outputs)
    return (
        symbol.spec.size and reads == 1 and any(symbol in n.outputs and n.command.name == "psum" for n in graph.nodes)
    )
