"""Transposed convolutions to few channels as convolutions to blocks: the same sums, where that pays, and only there."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.commands.conv import conv_input_grad
from nnc.graph import Graph, RewriteRule, Sample, check_rule, find_kernel, run_passes, sample
from nnc.lower.passes.simplify.algebra import spec
from nnc.lower.passes.simplify.subpixel import RULES, blocks_as_channels
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import evaluate, names, record, run

RNG = np.random.default_rng(3)


@contextmanager
def lanes(n: int, *, always: bool = False) -> Iterator[None]:
    """Kernels hold so many channels in a vector, and copies cost nothing; or blocks are wanted `always`."""
    with pytest.MonkeyPatch.context() as patch:
        module = sys.modules["nnc.lower.passes.simplify.subpixel"]
        patch.setattr(module, "_lanes", lambda *_: n)
        patch.setattr(module, "_COPY", 0)
        if always:
            patch.setattr(module, "_cost", lambda lanes, w, places, copied=0: -copied)
        yield


def transposed(
    ct: Any, w: Any, padding: Any, *, stride: Any, extra: Any = None, dtype: str = "float64", **others: Any
) -> Sample:
    """Operands and parameters of a transposed convolution to `extra` places more than the fewest."""
    ones = (1,) * len(stride)
    params = {"stride": stride, "padding": padding, "dilation": ones, "groups": 1, **others}
    axes = zip(ct[2:], stride, params["dilation"], w[2:], padding, extra or (0,) * len(stride), strict=True)
    spatial = tuple((n - 1) * s + d * (k - 1) + 1 - low - high + more for n, s, d, k, (low, high), more in axes)
    return sample(spec(ct, dtype), spec(w, dtype), spatial=spatial, **params)


def graph_of(case: Sample) -> Graph:
    """The one convolution as a graph."""
    return record(lambda ct, w: conv_input_grad(ct, w, **case.params), *case.specs)


def changes(case: Sample) -> bool:
    """Whether the pass takes the convolution apart."""
    return len(run(graph_of(case), "subpixel").nodes) > 1


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_each_rule_holds_up_to_rounding(rule: RewriteRule) -> None:
    with lanes(16):
        check_rule(rule)


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("kernel", range(1, 8))
def test_strides_and_padding_of_all_kinds_give_the_same_gradients(kernel: int, stride: int) -> None:
    pads = itertools.product(range(kernel), range(kernel), range(stride))
    with lanes(1, always=True):
        cases = [
            transposed((2, 3, 4), (3, 2, kernel), ((low, high),), stride=(stride,), extra=(extra,))
            for low, high, extra in pads
            if 3 * stride + kernel + extra > low + high
        ]
        check_rule(blocks_as_channels, cases)


@given(st.data())
def test_images_of_any_size_give_the_same_sums(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))

    def each(least: int, most: int) -> Any:
        return data.draw(st.tuples(*[st.integers(least, most)] * rank))

    windows, kernel, stride = each(1, 4), each(1, 5), each(1, 3)
    extra = tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    most = [(n - 1) * s + k + more - 1 for n, s, k, more in zip(windows, stride, kernel, extra, strict=True)]
    low = tuple(data.draw(st.integers(0, min(k - 1, n))) for k, n in zip(kernel, most, strict=True))
    high = tuple(data.draw(st.integers(0, min(k - 1, n - a))) for k, n, a in zip(kernel, most, low, strict=True))
    batch, features, channels = (data.draw(st.integers(1, 3)) for _ in range(3))
    padding, w = tuple(zip(low, high, strict=True)), (features, channels, *kernel)
    spatial = tuple(n - a - b + 1 for n, a, b in zip(most, low, high, strict=True))
    if max(stride) > 1:
        with lanes(1, always=True):
            case = transposed((batch, features, *windows), w, padding, stride=stride, extra=extra)
            assert case.params["spatial"] == spatial
            check_rule(blocks_as_channels, [case])


def test_gradients_pay_where_blocks_fill_vectors() -> None:
    def pays(channels: int, kernel: int, stride: int, n: int = 16) -> bool:
        padding = (((kernel - stride + 1) // 2,) * 2,) * 2
        case = transposed((1, 2, 24, 24), (2, channels, kernel, kernel), padding, stride=(stride,) * 2)
        with lanes(n):
            return changes(case)

    assert pays(3, 7, 2)
    assert pays(3, 4, 2)
    assert pays(1, 2, 2)
    assert pays(3, 3, 2)
    assert pays(3, 3, 2, n=8)  # 4 · 2 vectors for 9 · 1
    assert pays(8, 4, 2)
    assert not pays(16, 4, 2)
    assert not pays(16, 3, 2)
    assert pays(20, 4, 2)  # 4 · 5 for 16 · 2
    assert not pays(64, 2, 2)
    assert not pays(3, 7, 1)
    assert not pays(3, 7, 2, n=0)


def test_few_places_or_features_do_not_pay_for_copies() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["nnc.lower.passes.simplify.subpixel"], "_lanes", lambda *_: 16)
        for case, pays in (
            (transposed((8, 64, 16, 16), (64, 3, 4, 4), ((1, 1),) * 2, stride=(2, 2)), True),
            (transposed((8, 1, 16, 16), (1, 3, 4, 4), ((1, 1),) * 2, stride=(2, 2)), False),
        ):
            assert changes(case) == pays


@pytest.mark.parametrize(
    ("w", "padding", "others"),
    [
        ((4, 1, 4), ((1, 1),), {"groups": 2}),
        ((4, 1, 2), ((1, 1),), {"dilation": (3,)}),
        ((4, 1, 2), ((4, 0),), {}),
        ((4, 1, 2), ((0, 4),), {}),
    ],
    ids=["groups", "dilated", "padding larger than the kernel", "behind, too"],
)
def test_convolutions_that_blocks_cannot_express_stay(w: Any, padding: Any, others: Any) -> None:
    with lanes(1, always=True):
        assert not changes(transposed((1, 4, 5), w, padding, stride=(2,), **others))


@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64", "float32"])
def test_kernels_say_whether_their_vectors_hold_channels(dtype: str) -> None:
    case = transposed((1, 16, 19, 19), (16, 1, 7, 7), ((3, 3), (3, 3)), stride=(2, 2), dtype=dtype)
    kernel = find_kernel(conv_input_grad, case.specs, case.params)
    has_lanes = kernel is not None and kernel.lanes(case.specs, case.params) > 0
    assert changes(case) == has_lanes
    assert dtype == "float32" or not has_lanes


def test_convolutions_on_another_device_stay() -> None:
    case = transposed((1, 16, 19, 19), (16, 1, 7, 7), ((3, 3), (3, 3)), stride=(2, 2))
    with lanes(16, always=True):
        assert changes(case)
        assert names(run_passes(graph_of(case), ["subpixel"], Options(device="cuda:0"))) == ["conv_input_grad"]


def test_infinities_and_nans_spread_over_a_block_at_most() -> None:
    def spread(case: Sample, *passes: str) -> list[int]:
        """The mask of results that are not finite."""
        x, w = (np.ones(each.shape) for each in case.specs)
        x[0, 0, 4] = np.inf
        (found,) = evaluate(run(graph_of(case), *passes), [x, w])
        return np.flatnonzero(~np.isfinite(found[0, 0])).tolist()

    for kernel, expected in ((4, range(8, 12)), (5, range(8, 14))):
        case = transposed((1, 1, 9), (1, 1, kernel), ((0, 0),), stride=(2,))
        assert spread(case) == [*range(8, 8 + kernel)]
        with lanes(1, always=True):
            assert spread(case, "subpixel") == [*expected]


def test_weights_are_padded_before_the_rounds_of_a_loop() -> None:
    ct, w = np.ones((5, 2, 4, 6), np.float32), np.ones((4, 1, 5), np.float32)
    one = lambda x, w: nn.conv_transpose(x, w, stride=2, padding=1, layout="NCW")
    with lanes(16):
        graph = run(
            nnc.make_graph(lambda ct, w: nnc.scan(lambda c, x: (c, one(x, w)), 0, ct)[1])(ct, w), *names_of(SIMPLIFYING)
        )
    (loop,) = (node for node in graph.nodes if node.graphs)
    assert {"pad", "conv_input_grad"}.isdisjoint(names(loop.graphs[0]))


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_programs_compute_generators_and_gradients_of_images(layout: str, size: int) -> None:
    order = (0, 2, 3, 1) if layout == "NHWC" else (0, 1, 2, 3)
    x = RNG.normal(size=(2, 3, size, size)).astype(np.float32).transpose(order)
    z = RNG.normal(size=(2, 16, 5, 5)).astype(np.float32).transpose(order)
    w, v = (0.1 * RNG.normal(size=(16, 3, k, k)).astype(np.float32) for k in (7, 4))

    def generator(z: Any, v: Any) -> Any:
        return nnp.tanh(nn.conv_transpose(nn.relu(z), v, stride=2, padding=1, layout=layout))

    def features(x: Any, w: Any) -> Any:
        return nnp.sum(nn.relu(nn.conv(x, w, stride=2, padding=3, layout=layout)) ** 2)

    def both(x: Any, w: Any, z: Any, v: Any) -> Any:
        inner = lambda z, v: nnp.sum(generator(z, v) ** 3)
        return generator(z, v), nnc.grad(features, argnums=(0, 1))(x, w), nnc.grad(inner, argnums=(0, 1))(z, v)

    expected = nnc.tree.leaves(both(x, w, z, v))
    for found, one in zip(nnc.tree.leaves(nnc.compile(both)(x, w, z, v)), expected, strict=True):
        assert found.shape == one.shape
        np.testing.assert_allclose(np.asarray(found), np.asarray(one), rtol=0, atol=2e-5 * np.abs(one).max())


def test_a_smaller_memory_budget_still_holds() -> None:
    ct, w = RNG.normal(size=(2, 16, 12, 12)).astype(np.float32), RNG.normal(size=(16, 3, 7, 7)).astype(np.float32)
    f = lambda ct, w: nnp.tanh(nn.conv_transpose(ct, w, stride=2, padding=3))
    free = nnc.compile(f).lower(ct, w).compile().memory_plan.peak
    found = nnc.compile(f, memory_budget=free)(ct, w)
    np.testing.assert_allclose(np.asarray(found), np.asarray(f(ct, w)), rtol=0, atol=2e-5)
