from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.compiled.pipeline import plan_memory
from nnc.graph import Graph, structural_hash, verify
from nnc.lower.passes.memory.rematerialize_after_peak import Peak, rematerialize_after_peak
from nnc.lower.phases import BEFORE_FUSION, SIMPLIFYING, names_of
from nnc.lower.plan.bind import bind_buffers
from tests.fuzz.programs.test_passes import graphs
from tests.unit.lower.passes.tools import check_same_bits, names, run


def arena_bytes(graph: Graph) -> int:
    return plan_memory(bind_buffers(graph, Options()), Options()).arena_bytes


def early_and_late(function: Any) -> Any:
    """Reads function(x) before and after something large, which cannot be moved."""

    def whole(x: Any) -> Any:
        y = function(x)
        large = nnp.concatenate([x, x, x, x]) * nnp.sum(nnp.cumsum(y, axis=0))
        return nnp.cumsum(nnp.reshape(y, (-1,)) * nnp.sum(nnp.cumsum(large, axis=0)))

    return whole


def before_and_after(function: Any, shape: tuple[int, int] = (256, 1024)) -> tuple[Graph, Graph]:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    graph = run(nnc.make_graph(early_and_late(function))(x), "inline_calls", "dce")
    after = rematerialize_after_peak(graph, Options(native=False))
    verify(after)
    check_same_bits(graph, after, [x])
    return graph, after


def test_a_cheap_value_that_is_read_late_is_made_anew_with_its_views() -> None:
    graph, after = before_and_after(nnp.exp)
    assert (names(graph).count("exp"), names(after).count("exp")) == (1, 2)
    assert arena_bytes(after) < 0.9 * arena_bytes(graph)


def test_values_read_only_where_they_are_recomputed_are_not_kept() -> None:
    def whole(x: Any) -> Any:
        y = nnp.exp(x)
        square = y * y  # read late alone
        large = nnp.concatenate([x, x, x, x]) * nnp.sum(nnp.cumsum(y, axis=0))
        return nnp.cumsum(nnp.reshape(square, (-1,)) * nnp.sum(nnp.cumsum(large, axis=0)))

    graph = run(nnc.make_graph(whole)(np.ones((256, 1024), np.float32)), "inline_calls", "dce")
    after = rematerialize_after_peak(graph, Options(native=False))
    assert (names(after).count("exp"), names(after).count("mul")) == (2, names(graph).count("mul"))
    assert names(after).index("mul") > names(after).index("concatenate")


def test_facts_that_order_cached_lead_to_the_same_graph() -> None:
    x = np.ones((256, 1024), np.float32)
    ordered = run(nnc.make_graph(early_and_late(lambda x: nnp.exp(x) * 2))(x), "inline_calls", "dce", "order")
    assert "_description" in ordered.attrs
    described, found_anew = (
        rematerialize_after_peak(graph, Options(native=False)) for graph in (ordered, ordered.update(attrs={}))
    )
    assert names(described).count("exp") == 2
    assert structural_hash(described) == structural_hash(found_anew)
    assert Peak(ordered, Options()).nbytes == Peak(ordered.update(attrs={}), Options()).nbytes


def test_a_value_that_no_elementwise_command_makes_is_kept() -> None:
    graph, after = before_and_after(lambda x: nnp.cumsum(x, axis=1))
    assert after.nodes == graph.nodes


def test_a_value_of_many_commands_is_kept() -> None:
    def chain(x: Any) -> Any:
        for _ in range(9):
            x = nnp.sin(x)
        return x

    graph, after = before_and_after(chain)
    assert after.nodes == graph.nodes


def test_a_gelu_is_made_again() -> None:
    graph, after = before_and_after(nn.gelu)
    assert names(after).count("sigmoid") == names(graph).count("sigmoid") + 1


def test_small_graphs_are_unchanged() -> None:
    graph, after = before_and_after(nnp.exp, (16, 16))
    assert after.nodes == graph.nodes


def network(model: nn.Sequential, x: Any) -> Any:
    for conv, norm in zip(model[::2], model[1::2], strict=True):
        out, _ = norm(conv(x))
        x = nn.relu(out)
    return nnp.mean(nnp.square(x))


def test_activations_between_convolutions_are_made_anew_in_the_backward_part() -> None:
    keys = nnc.random.split(nnc.random.key(0), 6)
    model = nn.Sequential(*(layer for k in keys for layer in (nn.Conv(8, 8, 3, key=k, padding=1), nn.BatchNorm(8))))
    x = np.random.default_rng(0).standard_normal((4, 8, 32, 32), np.float32)
    graph = nnc.make_graph(lambda x: nnc.grad(network)(model, x))(x)
    kept = run(graph, *(name for name in names_of(BEFORE_FUSION) if name != "rematerialize_after_peak"))
    made = run(kept, "rematerialize_after_peak")
    assert arena_bytes(made) < 0.75 * arena_bytes(kept)
    assert names(made).count("conv") == names(kept).count("conv")
    check_same_bits(kept, made, [x])


@given(graphs())
def test_values_stay_the_same_wherever_the_peak_is(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    peak = Peak(graph, Options())
    for peak.place in range(0, len(graph.nodes), 1 + len(graph.nodes) // 4):
        after = peak.lowered()
        if after is not None:
            verify(after)
            check_same_bits(graph, after, inputs)
            described, anew = Peak(after, Options(), peak).description, Peak(after, Options()).description
            assert {symbol: described.views[symbol] for symbol in after.symbols()} == anew.views
            assert described.live_bytes() == anew.live_bytes()


def test_compiled_kernels_recompute_operands_that_they_alone_read_from_the_fewest_bytes() -> None:
    """The gradient of gelu reads four things that follow from its argument, which the product before left in memory."""

    def loss(w: Any, x: Any) -> Any:
        return nnp.sum(nn.gelu(x @ w) @ w)

    x, w = np.ones((1024, 256), np.float32), np.eye(256, dtype=np.float32) / 16
    graph = run(nnc.make_graph(nnc.grad(loss))(w, x), *names_of(SIMPLIFYING), "order")
    after = rematerialize_after_peak(graph, Options())
    verify(after)
    check_same_bits(graph, after, [w, x])
    assert arena_bytes(run(after, "fuse")) < 0.7 * arena_bytes(run(graph, "fuse"))
