"""Where weights are packed: once for equal readers, before loops, and outside the program where arguments stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn.library import library
from nnc.base.options import Options
from nnc.graph import Graph, run_passes, verify
from nnc.lower.phases import BEFORE_FUSION, SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import names, run

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

RNG = np.random.default_rng(0)


def values(*shape: int) -> Any:
    return 0.1 * RNG.standard_normal(shape, np.float32)


X, W, V = values(2, 16, 10, 10), values(16, 16, 3, 3), values(16, 16, 3, 3)


def convolve(x: Any, w: Any) -> Any:
    return nn.conv(x, w, padding=1)


def packed(function: Any, *inputs: Any, keeps: bool = False) -> Graph:
    """The graph after the pass, which computes the same values as before."""
    graph = run(nnc.make_graph(function)(*inputs), *names_of(SIMPLIFYING), "layout")
    after = run_passes(graph, ["pack"], Options(keeps=tuple(range(len(inputs))) if keeps else ()))
    for found, expected in zip(results(after, inputs), results(graph, inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return after


def results(graph: Graph, inputs: Any) -> list[Any]:
    found = graph(*inputs)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def packs(graph: Graph) -> int:
    """Returns how many `pack` nodes the graph has, without its sub-graphs' nodes."""
    return names(graph).count("pack")


def test_a_weight_is_packed_before_it_is_read_and_its_layout_is_in_the_text() -> None:
    graph = packed(convolve, X, W, keeps=True)
    (node,) = [node for node in graph.nodes if node.command.name == "conv"]
    layout = node.params["packed"]
    assert node.inputs[1].spec.layout == layout
    assert node.inputs[1].spec.nbytes == W.nbytes
    assert f":{layout} = pack(" in str(graph)


def test_equal_packs_are_one() -> None:
    assert packs(packed(lambda x, w: convolve(nnp.exp(convolve(x, w)), w), X, W)) == 1


def test_forward_and_backward_share_a_pack_where_they_want_the_same() -> None:
    def loss(x: Any, w: Any) -> Any:
        return nnp.sum(nn.conv(nnp.exp(x), w, padding=1, groups=16) ** 2)

    graph = packed(nnc.grad(loss), values(2, 16, 4, 4), values(16, 1, 3, 3))
    layouts = [node.params["packed"] for node in graph.nodes if "packed" in node.params]
    assert len(layouts) == 2
    assert packs(graph) == 1


def test_a_scan_packs_captured_values_once() -> None:
    graph = packed(lambda x, w: nnc.scan(lambda c, _: (convolve(c, w), None), x, None, length=3)[0], X, W)
    assert names(graph)[:2] == ["pack", "scan"]
    (body,) = graph.nodes[1].graphs
    assert packs(body) == 0


def test_a_while_packs_captured_values_once() -> None:
    def count(x: Any, w: Any) -> Any:
        return nnc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, convolve(s[1], w)), (0, x))[1]

    graph = packed(count, X, W)
    assert packs(graph) == 1
    (loop,) = [node for node in graph.nodes if node.command.name == "while"]
    assert packs(loop.graphs[0]) == 0


def test_loops_that_capture_the_same_weight_share_its_pack() -> None:
    def both(x: Any, w: Any) -> Any:
        for _ in range(2):
            x = nnp.exp(nnc.scan(lambda c, _: (convolve(c, w), None), x, None, length=2)[0])
        return convolve(x, w)

    assert packs(packed(both, X, W)) == 1


def test_weights_that_would_be_packed_as_often_are_left_to_the_kernel() -> None:
    assert packs(packed(convolve, X, W)) == 0
    assert packs(packed(lambda x, w: convolve(x, 2 * w), X, W, keeps=True)) == 0


def test_weights_that_change_in_each_iteration_are_left_to_the_kernel() -> None:
    def train(x: Any, w: Any) -> Any:
        return nnc.scan(lambda w, _: (w * 0.5, nnp.sum(convolve(x, w))), w, None, length=3)[1]

    graph = packed(train, X, W)
    assert "pack" not in {node.command.name for node in graph.walk()}


def test_a_constant_is_packed_while_the_program_is_made() -> None:
    graph = nnc.make_graph(convolve)(X, W)
    x, w = graph.inputs
    graph = graph.update(inputs=(x,), constants={**graph.constants, w: W})
    after = run(run(graph, "layout"), "pack")
    verify(after)
    assert packs(after) == 0
    (node,) = [node for node in after.nodes if node.command.name == "conv"]
    assert node.inputs[1] in after.constants
    np.testing.assert_allclose(results(after, (X,))[0], results(graph, (X,))[0], rtol=1e-5, atol=1e-5)


def test_without_machine_code_nothing_is_packed() -> None:
    graph = nnc.make_graph(convolve)(X, W)
    assert packs(run_passes(graph, ["pack"], Options(keeps=(0, 1), native=False))) == 0
    assert packs(run_passes(graph, ["pack"], Options(keeps=(0, 1)))) == 1


def kept(function: Any, *inputs: Any, **options: Any) -> tuple[Any, ...]:
    """Returns the packing that the whole pipeline leaves to the caller of the program."""
    options = {"keeps": tuple(range(len(inputs))), **options}
    graph = run_passes(nnc.make_graph(function)(*inputs), names_of(BEFORE_FUSION), Options(**options))
    return tuple(source for source, _ in graph.attrs["kept"])


def test_packs_of_inputs_are_left_out_of_the_program() -> None:
    assert kept(lambda x, w, v: nnp.sum(convolve(convolve(x, v), w), (0, 2, 3)), X, W, V) == (1, 2)


def test_only_inputs_that_options_name_are_kept() -> None:
    assert kept(lambda x, w, v: nnp.sum(convolve(convolve(x, v), w), (0, 2, 3)), X, W, V, keeps=(0, 2)) == (2,)


def test_parameters_that_are_trained_are_not_kept() -> None:
    step = nnc.grad(lambda w, x: nnp.sum(convolve(convolve(x, w), w)))
    assert kept(step, W, X) == ()


def test_a_program_with_a_budget_keeps_nothing() -> None:
    assert kept(lambda x, w: nnp.sum(convolve(x, w)), X, W, memory_budget=1 << 30) == ()
