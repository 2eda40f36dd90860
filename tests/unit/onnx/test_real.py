"""A real model, the one of the package magika, which tells kinds of files apart, and models with weights of int8."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnxruntime

import nnc
from nnc.onnx.__main__ import main
from tests.unit.onnx.models import FLOAT, model, node
from tests.unit.onnx.test_callable import traces

LENGTH = 2048  # bytes that the model reads


@pytest.fixture(scope="module")
def path() -> Path:
    spec = find_spec("magika")
    if spec is None or spec.origin is None:
        pytest.skip("the package magika is not installed")
    return sorted(Path(spec.origin).parent.glob("models/*/model.onnx"))[-1]


def text(seed: int, count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 257, (count, LENGTH)).astype(np.int32)


def test_a_real_model_is_compiled_whole_once_for_equal_shapes_and_equal_to_onnxruntime(path: Path) -> None:
    f, session = nnc.onnx.load(path), onnxruntime.InferenceSession(path)
    (name,) = (value.name for value in f.inputs)
    for seed, count in enumerate((2, 2, 1, 2)):
        x = text(seed, count)
        np.testing.assert_allclose(f({name: x})[0], session.run(None, {name: x})[0], rtol=1e-4, atol=1e-6)
    assert f.explain().splitlines() == [
        f"compiled as a whole: {name} int32[2, {LENGTH}]", f"compiled as a whole: {name} int32[1, {LENGTH}]",
    ]  # fmt: skip
    assert traces(f) == 2


def test_the_command_describes_runs_times_and_draws_a_real_model(path: Path, tmp_path: Path, capsys: Any) -> None:
    assert main([str(path), "--run", "--time", "--graph", str(tmp_path / "graph.html")]) == 0
    shown = capsys.readouterr().out
    for part in ("inputs", "outputs", "weights of", "  Conv 1", "compiled as a whole", "nnc: ", "onnxruntime: "):
        assert part in shown
    assert (tmp_path / "graph.html").stat().st_size > 10_000


def sizes_of_constants(data: bytes, **feeds: Any) -> dict[str, int]:
    """The bytes of the constants that a model has when it is traced, by dtype."""
    f, found = nnc.onnx.load(data), dict[str, int]()
    graph = nnc.make_graph(lambda *operands: f(dict(zip(feeds, operands, strict=True))))(*feeds.values())
    for symbol in graph.constants:
        found[symbol.spec.dtype.name] = found.get(symbol.spec.dtype.name, 0) + symbol.spec.nbytes
    return found


SIZE = 768
# of 7 bits, since onnxruntime adds pairs of products in 16 bits on processors without VNNI
WHOLE = np.random.default_rng(0).integers(-63, 64, (4, SIZE, SIZE)).astype(np.int8)
X = np.random.default_rng(1).standard_normal((2, SIZE)).astype(np.float32)


@pytest.mark.parametrize("kind", ["of integers", "of floats"])
def test_weights_of_int8_stay_int8(kind: str) -> None:
    """In integer products, and where they become floats in front of products of floats."""
    nodes, now = [], "x"
    for layer in range(len(WHOLE)):
        if kind == "of integers":
            nodes += [
                node("DynamicQuantizeLinear", [now], [f"q{layer}", f"s{layer}", f"z{layer}"]),
                node("MatMulInteger", [f"q{layer}", f"w{layer}", f"z{layer}"], [f"i{layer}"]),
                node("Cast", [f"i{layer}"], [f"f{layer}"], to=FLOAT), node("Mul", [f"f{layer}", f"s{layer}"], [f"m{layer}"]),
                node("Mul", [f"m{layer}", "scale"], [f"h{layer}"]),
            ]  # fmt: skip
        else:
            nodes += [
                node("DequantizeLinear", [f"w{layer}", "scale"], [f"f{layer}"]),
                node("MatMul", [now, f"f{layer}"], [f"h{layer}"]),
            ]  # fmt: skip
        now = f"h{layer}"
    weights = {"scale": np.float32(1e-3)} | {f"w{layer}": matrix for layer, matrix in enumerate(WHOLE)}
    data = model(nodes, {"x": (FLOAT, [2, SIZE])}, {now: (FLOAT, None)}, weights)
    found = sizes_of_constants(data, x=X)
    assert found["int8"] == WHOLE.nbytes
    assert found.get("float32", 0) < 1000
    wanted = onnxruntime.InferenceSession(data).run(None, {"x": X})[0]
    np.testing.assert_allclose(nnc.onnx.load(data)({"x": X})[0], wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
