"""Networks in bfloat16 run on compiled kernels, forwards and backwards, and agree with the same networks in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.backends.choose import choose_kernel
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn import matmul
from nnc.backends.onednn.library import library
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import TensorSpec
from nnc.lower.plan.liveness import walk
from tests.figures import HERE

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

Case = tuple[Callable[[Any, Any], Any], Any, np.ndarray]


def convolutions() -> Case:
    """Convolutions with channels first and last, with and without groups, a pool whose windows overlap, a linear layer."""
    keys = nnc.random.split(nnc.random.key(0), 4)
    layers = {
        "a": nn.Conv(3, 16, 3, key=keys[0], padding=1),
        "b": nn.Conv(16, 16, 3, key=keys[1], padding=1, groups=16),
        "c": nn.Conv(16, 32, 1, key=keys[2]),
        "d": nn.Linear(32, 5, key=keys[3]),
    }

    def loss(layers: Any, x: Any) -> Any:
        x = nn.max_pool(nn.relu(layers["a"](x)), 3, stride=2, padding=1)
        x = nn.relu(layers["c"](nn.relu(layers["b"](x)) + x))
        return nnp.mean(layers["d"](nnp.mean(x, axis=(2, 3))) ** 2)

    return loss, layers, np.random.default_rng(0).normal(size=(4, 3, 16, 16))


def transformer() -> Case:
    """A layer with attention, layer norms and two linear layers."""
    layer = nn.TransformerEncoderLayer(64, 4, key=nnc.random.key(1))
    return lambda layer, x: nnp.mean(nnp.tanh(layer(x)) * x), layer, np.random.default_rng(1).normal(size=(2, 48, 64))


CASES = {"convolutions": convolutions, "transformer": transformer}


@pytest.mark.parametrize("name", CASES)
def test_a_network_and_its_gradient_agree_with_float32(name: str) -> None:
    loss, model, x = CASES[name]()
    step = nnc.compile(nnc.value_and_grad(loss))
    half = nn.cast(model, "bfloat16")
    value, gradient = step(half, nnc.asarray(x, dtype="bfloat16"))
    wanted_value, wanted = step(nn.cast(half, "float32"), nnc.asarray(x, dtype="bfloat16").astype("float32"))
    assert value.dtype == dtypes.bfloat16
    np.testing.assert_allclose(np.float64(value), np.float64(wanted_value), rtol=2e-2)
    for a, b in zip(tree.leaves(gradient), tree.leaves(wanted), strict=True):
        assert a.dtype == dtypes.bfloat16
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.linalg.norm(a - b) <= 5e-2 * np.linalg.norm(b) + 1e-5  # the gradient of the keys' bias is 0


@pytest.mark.parametrize("name", CASES)
def test_no_command_of_a_network_is_left_to_the_reference(name: str) -> None:
    loss, model, x = CASES[name]()
    graph = nnc.make_graph(nnc.value_and_grad(loss))(nn.cast(model, "bfloat16"), nnc.asarray(x, dtype="bfloat16"))
    program = lower(graph, Options(), choose_kernel, compiler())
    steps = [step for step in walk(program.bound.steps) if step.region is None]
    backends = {step.command.name: program.kernel_of(step).backend for step in steps}
    assert program.code is not None and all(id(step) in program.code.natives for step in steps), backends
    assert set(backends.values()) <= {"cpu", "onednn"}
    large = TensorSpec((512, 512), dtypes.bfloat16)
    if name == "convolutions" or matmul.kernel(HERE).supports((large, large), {"contract": ((1,), (0,))}):
        assert "onednn" in backends.values()  # which has products in bfloat16 for some processors only


def test_sums_of_convolutions_are_formed_in_float32() -> None:
    """In bfloat16 a sum of ones ends at 256."""

    def ones(*shape: int) -> Any:
        return nnp.ones(shape, "bfloat16")

    gradients = nnc.compile(lambda x, w, ct: nnc.vjp(nn.conv, x, w)[1](ct))
    forward = nnc.compile(nn.conv)(ones(1, 512, 3, 3), ones(4, 512, 3, 3))
    data, _ = gradients(ones(1, 4, 1, 1), ones(4608, 4, 1, 1), ones(1, 4608, 1, 1))
    _, weights = gradients(ones(4608, 4, 1, 1), ones(4, 4, 1, 1), ones(4608, 4, 1, 1))
    for found in (forward, data, weights):
        assert (np.asarray(found, np.float32) == 4608).all()
