from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.graph import Graph, run_passes, verify
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import names, run

RNG = np.random.default_rng(0)
TURNS = ("reorder", "transpose")


def values(*shape: int) -> Any:
    return 0.3 * RNG.standard_normal(shape, np.float32)


def turned(function: Any, *inputs: Any) -> Graph:
    """The graph after the pass, which computes the same values as before."""
    graph = run(nnc.make_graph(function)(*inputs), *names_of(SIMPLIFYING))
    after = run(graph, "layout")
    verify(after)
    flat = nnc.tree.leaves(inputs)
    before = [np.asarray(x) for x in graph(*flat)]
    scale = max(np.abs(x).max() for x in before)
    for found, expected in zip(after(*flat), before, strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=2e-5 * scale)
    return after


def turns(graph: Graph) -> list[str]:
    return [name for name in names(graph) if name in TURNS]


def with_channels_last(graph: Graph) -> list[str]:
    return [node.command.name for node in graph.nodes if node.params.get("channels_last")]


class Block(nn.Module):
    """A residual block with batch norm."""

    first: nn.Conv
    norm: nn.BatchNorm
    second: nn.Conv

    def __init__(self, features: int, key: Any) -> None:
        keys = nnc.random.split(key)
        self.first, self.second = (nn.Conv(features, features, 3, key=k, padding=1) for k in keys)
        self.norm = nn.BatchNorm(features)

    def __call__(self, x: Any) -> Any:
        y, _ = self.norm(self.first(x))
        return nn.relu(x + self.second(nn.relu(y)))


def network(model: Any, x: Any) -> Any:
    stem, blocks, head = model
    y = nn.max_pool(stem(x), 3, stride=2, padding=1)
    for block in blocks:
        y = block(y)
    return nnp.sum(nnp.square(nnp.mean(y, axis=(2, 3)) @ head))


def test_the_training_step_of_a_residual_network_turns_nothing_but_its_images() -> None:
    keys = nnc.random.split(nnc.random.key(0), 3)
    model = nn.Conv(3, 16, 7, key=keys[0], stride=2), [Block(16, key) for key in keys[1:]], values(16, 5)
    after = turned(nnc.value_and_grad(network), model, values(2, 3, 32, 32))
    assert turns(after) == ["reorder"]
    assert after.nodes[0].command.name == "reorder"
    convolutions = [
        node for node in after.nodes if node.command.name.startswith("conv_") or node.command.name == "conv"
    ]
    assert len(convolutions) == 5 * 3 - 1
    assert all(node.params["channels_last"] for node in convolutions)


def test_convolutions_on_another_device_keep_their_axes() -> None:
    graph = nnc.make_graph(chain(nn.relu))(values(2, 8, 16, 16), values(8, 8, 3, 3))
    for device, turned in (("cpu", True), ("cuda:0", False)):
        after = run_passes(graph, [*names_of(SIMPLIFYING), "layout"], Options(device=device))
        assert bool(with_channels_last(after)) == turned


def chain(middle: Any, convolutions: int = 3) -> Any:
    """`middle` between convolutions, which gain by having their channels last."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(convolutions):
            x = nn.conv(x, w, padding=1)
        y = middle(x)
        for _ in range(convolutions):
            y = nn.conv(y, w, padding=1)
        return y

    return function


MIDDLES: dict[str, Any] = {
    "elementwise": lambda x: nn.gelu(x) * x + 1,
    "comparisons": lambda x: nnp.where(x > 0, x, nnp.exp(x)),
    "a bias for each channel": lambda x: x + nnp.arange(8.0, dtype=np.float32).reshape(8, 1, 1),
    "a bias for each place": lambda x: x + nnp.arange(54.0, dtype=np.float32).reshape(9, 6),
    "channel attention": lambda x: x * nn.sigmoid(nnp.mean(x, axis=(2, 3), keepdims=True)),
    "spatial attention": lambda x: x * nn.sigmoid(nnp.mean(x, axis=1, keepdims=True)),
    "rows": lambda x: x - nnp.max(x, axis=3, keepdims=True),
    "softmax of channels": lambda x: nn.softmax(x, axis=1),
    "softmax of places": lambda x: nn.log_softmax(x, axis=(2, 3)),
    "joined channels": lambda x: nnp.concatenate([x[:, 4:], x[:, :4]], axis=1),
    "joined rows": lambda x: nnp.concatenate([x, x], axis=2),
    "parts": lambda x: x[:, :, 1:7:2, ::2],
    "turned round": lambda x: x[:, :, ::-1],
    "padded": lambda x: nnp.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1))),
    "maxima": lambda x: nn.max_pool(x, 2),
    "means": lambda x: nn.avg_pool(x, 3, stride=2, padding=1),
}


@pytest.mark.parametrize("middle", MIDDLES)
def test_nodes_between_convolutions_are_turned_with_them(middle: str) -> None:
    after = turned(chain(MIDDLES[middle]), values(2, 8, 9, 6), values(8, 8, 3, 3))
    assert with_channels_last(after).count("conv") == 6
    moved = [node for node in after.nodes if node.command.name in TURNS and node.inputs[0].spec.size >= 2 * 8 * 9]
    assert [node.command.name for node in moved if node.inputs[0].spec.ndim == 4] == ["reorder", "transpose"]


def test_other_nodes_read_results_turned_back() -> None:
    function = chain(lambda x: x + nnp.cumsum(x, axis=2), 6)
    after = turned(function, values(2, 8, 9, 6), values(8, 8, 3, 3))
    (node,) = (node for node in after.nodes if node.command.name == "cumsum")
    assert node.inputs[0].spec.shape == (2, 8, 9, 6)
    assert turns(after) == ["reorder", "transpose", "reorder", "transpose"]
    assert with_channels_last(after) == ["conv"] * 12


@pytest.mark.parametrize("middle", ["maxima", "means", "channel attention", "joined channels", "padded", "parts"])
def test_gradients_are_turned_with_their_primals(middle: str) -> None:
    def loss(w: Any, x: Any) -> Any:
        return nnp.sum(nnp.square(chain(MIDDLES[middle])(x, w)))

    after = turned(nnc.grad(loss), values(8, 8, 3, 3), values(2, 8, 9, 6))
    assert turns(after) == ["reorder"]


def test_a_convolution_by_itself_stays() -> None:
    after = turned(lambda x, w: nn.relu(nn.conv(x, w)), values(2, 8, 9, 9), values(8, 8, 3, 3))
    assert not with_channels_last(after)
    assert not turns(after)


def test_networks_without_convolutions_stay() -> None:
    graph = run(
        nnc.make_graph(lambda x: nnp.sum(nn.max_pool(x, 2), axis=1))(values(2, 3, 8, 8)), *names_of(SIMPLIFYING)
    )
    assert run(graph, "layout").nodes == graph.nodes


def test_images_whose_channels_are_last_already_are_read_as_they_lie() -> None:
    def function(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = nn.conv(x, w, padding=1, layout="NHWC")
        return x

    after = turned(function, values(2, 9, 9, 8), values(8, 8, 3, 3))
    assert with_channels_last(after) == ["conv"] * 4
    assert not turns(after)


def test_one_channel_is_first_and_last() -> None:
    def function(x: Any, first: Any, w: Any) -> Any:
        x = nn.conv(x, first, padding=1)
        for _ in range(3):
            x = nn.conv(x, w, padding=1)
        return nnp.max(x, axis=(2, 3))

    after = turned(function, values(2, 1, 9, 9), values(8, 1, 3, 3), values(8, 8, 3, 3))
    assert with_channels_last(after) == ["conv"] * 4
    assert not turns(after)


def test_rounds_of_loops_are_turned() -> None:
    def function(x: Any, w: Any) -> Any:
        def body(x: Any, _: Any) -> Any:
            y = x
            for _ in range(5):
                y = nn.relu(nn.conv(y, w, padding=1))
            return y, nnp.sum(y)

        return nnc.scan(body, x, length=3)

    after = turned(function, values(2, 8, 9, 6), values(8, 8, 3, 3))
    (loop,) = (node for node in after.nodes if node.command.name == "scan")
    assert with_channels_last(loop.graphs[0]) == ["conv"] * 5
    assert turns(loop.graphs[0]) == ["reorder", "transpose"]


def test_without_native_kernels_nothing_is_turned() -> None:
    graph = run(nnc.make_graph(chain(nn.relu))(values(2, 8, 9, 6), values(8, 8, 3, 3)), *names_of(SIMPLIFYING))
    assert nnc.graph.run_passes(graph, ("layout",), Options(native=False)).nodes == graph.nodes
