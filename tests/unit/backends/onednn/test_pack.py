"""Weights in oneDNN's layouts: `pack` byte by byte, convolutions that read them, and chains in which nothing is reordered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.numpy_ref import choose_kernel
from nnc.backends.onednn import convolution
from nnc.backends.onednn import library as onednn_library
from nnc.backends.onednn import pack as onednn_pack
from nnc.backends.onednn.library import MemoryDesc, library
from nnc.base import dtypes
from nnc.commands.pack import Blocks, pack
from nnc.graph import command, reference, spec_of
from nnc.lower.plan.liveness import walk
from tests.unit.backends.onednn.test_convolution import GEOMETRIES, problem, run

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

RNG = np.random.default_rng(0)
COMMANDS = ("conv", "conv_input_grad")


def wish(name: str, operands: list[Any], params: dict[str, Any]) -> str | None:
    """The layout in which oneDNN wants the weight."""
    specs = tuple(map(spec_of, operands))
    return choose_kernel(command(name), specs, params).layouts(specs, params, True).get(1)


def packed(weight: Any, layout: str) -> Any:
    """The weight as the library packs it, into memory full of garbage."""
    specs, params = (spec_of(weight),), {"layout": layout}
    kernel = choose_kernel(pack, specs, params)
    assert kernel.backend == "onednn"
    out = np.full(math.prod(Blocks.of(layout).padded), 77, weight.dtype)
    kernel.run([weight], [out], params)
    return out


@pytest.mark.parametrize("dtype", [np.float32, dtypes.bfloat16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_packed_weight_agrees_with_the_weight(geometry: str, name: str, last: bool, dtype: Any) -> None:
    operands, params = problem(geometry, name, dtype, last=last)
    layout = wish(name, operands, params)
    if layout is None:
        return
    weight = packed(operands[1], layout)
    np.testing.assert_array_equal(weight.view(np.uint8), reference[pack](operands[1], layout=layout).view(np.uint8))
    expected = run(name, operands, params).astype(np.float32)
    params = {**params, "packed": layout}
    tolerance = np.abs(expected).max() * (1e-5 if dtype == np.float32 else 2e-2)
    for found in (run(name, [operands[0], weight], params), reference[command(name)](operands[0], weight, **params)):
        np.testing.assert_allclose(found.astype(np.float32), expected, rtol=0, atol=tolerance)


@pytest.mark.skipif(
    getattr(library(), "instructions", "") in ("SSE41", "AVX"), reason="oneDNN has few kernels for old processors"
)
def test_most_geometries_have_a_layout_that_is_not_strided() -> None:
    found = [wish(name, *problem(geometry, name, last=True)) for geometry in GEOMETRIES for name in COMMANDS]
    assert sum(layout is not None for layout in found) > len(found) // 2


def test_a_weight_that_lies_in_other_strides_is_packed_as_well() -> None:
    operands, params = problem("3x3", "conv", last=True)
    layout = wish("conv", operands, params)
    assert layout is not None
    turned = np.ascontiguousarray(operands[1].transpose(1, 3, 0, 2)).transpose(2, 0, 3, 1)
    np.testing.assert_array_equal(packed(turned, layout), packed(operands[1], layout))


def test_a_layout_keeps_its_meaning_on_the_way_to_the_library_and_back() -> None:
    blocks = Blocks.of("40x16x3x3:Acdb48a")
    assert MemoryDesc.blocked(blocks, np.dtype(np.float32)).blocks(np.dtype(np.float32)) == blocks
    assert MemoryDesc.blocked(blocks, np.dtype(np.float32)).nbytes == 4 * math.prod(blocks.padded)


class Chain(nn.Module):
    """conv → norm → relu → conv."""

    first: nn.Conv
    norm: nn.BatchNorm
    second: nn.Conv

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key)
        self.first, self.second = nn.Conv(16, 40, 3, key=keys[0], padding=1), nn.Conv(40, 16, 3, key=keys[1], padding=1)
        self.norm = nn.BatchNorm(40)

    def __call__(self, x: Any) -> Any:
        y, _ = self.norm(self.first(x))
        return self.second(nn.relu(y))


def primitives(executable: Any) -> list[int]:
    """Counts the primitives of the library that each convolution of a program runs."""
    program = executable._program
    steps = [step for step in walk(program.bound.steps) if step.command.name.startswith(("conv", "with_epilogue"))]
    texts = [program.code.natives[id(step)].text for step in steps]
    return [text.count("= call i32 @dnnl_primitive_execute(") for text in texts]


def apply(model: Any, x: Any) -> Any:
    return model(x)


def chain() -> tuple[Any, Any]:
    return nn.inference_mode(Chain(nnc.random.key(0))), nnp.asarray(RNG.standard_normal((2, 16, 12, 12), np.float32))


def test_a_chain_of_convolutions_reorders_nothing() -> None:
    model, x = chain()
    executable = nnc.compile(apply).lower(model, x).compile()
    assert primitives(executable) == [1, 1]
    assert "pack(" not in executable.as_text()
    np.testing.assert_allclose(np.asarray(executable(model, x)), np.asarray(model(x)), rtol=1e-4, atol=1e-5)


def test_programs_agree_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = chain()

    def result() -> tuple[Any, int]:
        executable = nnc.compile(apply).lower(model, x).compile()
        return np.asarray(executable(model, x)), executable.memory_plan.kept_bytes

    with_library, kept = result()
    assert kept > 0
    for module in (convolution, onednn_pack):
        monkeypatch.setattr(module, "library", lambda: None)
    without, kept = result()
    assert kept == 0
    np.testing.assert_allclose(without, with_library, rtol=1e-4, atol=1e-5)


def test_a_weight_that_the_reference_packs_serves_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = chain()
    monkeypatch.setattr(onednn_pack, "library", lambda: None)
    executable = nnc.compile(apply).lower(model, x).compile()
    assert primitives(executable) == [1, 1]
    np.testing.assert_allclose(np.asarray(executable(model, x)), np.asarray(model(x)), rtol=1e-4, atol=1e-5)


def test_a_library_without_layouts_by_name_packs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    operands, params = problem("3x3", "conv", last=True)
    specs = tuple(map(spec_of, operands))
    layouts = choose_kernel(command("conv"), specs, params).layouts
    assert layouts(specs, params, True)
    convolution._layout.cache_clear()
    monkeypatch.setattr(onednn_library, "_BY_NAME", "dnnl_no_such_function")
    assert layouts(specs, params, True) == {}
    convolution._layout.cache_clear()
