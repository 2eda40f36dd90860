"""ONNX models in nnc and in onnxruntime, one thread each, in turns.

    python -m benchmarks.onnx_models [MODEL.onnx ...]

Without files: functions that nnc exports, and models within installed packages (silero-vad, magika, rapidocr-onnxruntime, nudenet).
Inputs are random; sizes that a model leaves open are those of SIZES, else 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import nnc
from benchmarks.tables import Cell, describe_machine, print_table
from nnc import nn

ROUNDS = 20
PACKAGES = {  # models within packages, and the sizes that they leave open, by input and axis
    "silero_vad": ("data/silero_vad_16k_op15.onnx", {("input", 0): 1, ("input", 1): 576}),
    "magika": ("models/standard_v3_3/model.onnx", {}),
    "rapidocr_onnxruntime": ("models/ch_PP-OCRv4_rec_infer.onnx", {("x", 1): 3, ("x", 2): 48, ("x", 3): 160}),
    "nudenet": ("320n.onnx", {("images", 2): 320, ("images", 3): 320}),
}
Sizes = Mapping[tuple[str, int], int]


def exported() -> Iterator[tuple[str, bytes]]:
    """Writes models of nnc's own."""
    key = nnc.random.key(0)
    resnet = nn.inference_mode(nn.models.resnet18(num_classes=10, small_images=True, key=key))
    spec = nnc.ShapeDtypeStruct
    yield "ResNet-18, batch 1", nnc.onnx.export(lambda x: resnet(x), [spec((1, 3, 32, 32), "float32")])
    lstm = nn.LSTM(64, 128, key=key)
    yield "LSTM 64-128, 50 steps", nnc.onnx.export(lambda x: lstm(x), [spec((50, 8, 64), "float32")])
    mlp = nn.MLP(256, 10, width=512, depth=2, key=key)
    yield "MLP 256-512-512-10, batch 32", nnc.onnx.export(lambda x: mlp(x), [spec((32, 256), "float32")])


def in_packages() -> Iterator[tuple[str, bytes, Sizes]]:
    """Reads models of installed packages."""
    for package, (place, sizes) in PACKAGES.items():
        found = find_spec(package)
        if found is not None and found.submodule_search_locations:
            path = Path(found.submodule_search_locations[0]) / place
            if path.exists():
                yield f"{package}: {path.stem}", path.read_bytes(), sizes


def draw(data: bytes, sizes: Sizes) -> dict[str, np.ndarray[Any, Any]]:
    """Draws inputs of a model."""
    graph, rng, feeds = onnx.load_from_string(data).graph, np.random.default_rng(0), {}
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value or sizes.get((value.name, axis), 1) for axis, d in enumerate(kind.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape) / 2 if dtype.kind == "f" else rng.integers(1, 100, shape)
        feeds[value.name] = np.asarray(drawn).astype(dtype)
    return feeds


def measure(title: str, data: bytes, sizes: Sizes) -> list[Cell]:
    """Returns a row: milliseconds of both, their ratio, and how far results lie apart."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    model, feeds = nnc.onnx.load(data), draw(data, sizes)
    arrays = {name: nnc.asarray(value) for name, value in feeds.items()}
    begin = time.perf_counter()
    found = nnc.block_until_ready(model(arrays))
    first = time.perf_counter() - begin
    wanted = session.run(None, feeds)
    apart = max(distance(value, other) for value, other in zip(found, wanted, strict=True))
    ways: list[Callable[[], object]] = [lambda: nnc.block_until_ready(model(arrays)), lambda: session.run(None, feeds)]
    mine, theirs = (statistics.median(times) for times in take_turns(ways))
    how = model.explain().splitlines()[-1].partition(":")[0]
    return [
        title,
        f"{1e3 * mine:.3f}",
        f"{1e3 * theirs:.3f}",
        f"{theirs / mine:.2f}",
        f"{first:.2f}",
        f"{apart:.1e}",
        how,
    ]


def distance(value: Any, other: Any) -> float:
    """The largest difference, relative to the largest number."""
    wide, wanted = np.asarray(value).astype(np.float64), np.asarray(other).astype(np.float64)
    return float(np.max(np.abs(wide - wanted), initial=0) / max(float(np.max(np.abs(wanted), initial=0)), 1e-30))


def take_turns(ways: Sequence[Callable[[], object]]) -> list[list[float]]:
    """Returns the seconds of calls of each way."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, found in zip(ways, times, strict=True):
            way()  # fills the caches again
            begin = time.perf_counter()
            way()
            found.append(time.perf_counter() - begin)
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_models", description="Times models beside onnxruntime."
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files of models")
    options = parser.parse_args(arguments)
    nnc.set_num_threads(1)
    if options.paths:
        models: list[tuple[str, bytes, Sizes]] = [(path.stem, path.read_bytes(), {}) for path in options.paths]
    else:
        models = [*((title, data, {}) for title, data in exported()), *in_packages()]
    rows = [measure(*model) for model in models]
    header = ["model", "nnc, ms", "onnxruntime, ms", "onnxruntime / nnc", "first call, s", "apart", "nnc ran it"]
    print(describe_machine("onnx", "onnxruntime"), "1 thread each", sep="; ")
    print_table("ONNX models", header, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
