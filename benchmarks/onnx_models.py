"""ONNX models in nnc and in onnxruntime, one thread each, in turns: the least processor time of a call.

    python -m benchmarks.onnx_models [MODEL.onnx ...]

Without files: functions that nnc exports, and models within packages, as far as these are installed (`pip install --no-deps` is
enough). Inputs are random; sizes that a model leaves open are those of its row, else 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

import nnc
from benchmarks.tables import Cell, describe_machine, print_table
from nnc import nn

ROUNDS = 15
LEAST = 0.004  # seconds that a measurement takes


class Packaged(NamedTuple):
    """A model within a package."""

    title: str
    package: str
    path: str
    sizes: Mapping[str, Sequence[int]] = MappingProxyType({})  # shapes of inputs that the model leaves open
    integers: Mapping[str, int] = MappingProxyType(
        {}
    )  # the value of each element of inputs; other integers are 1 to 99


FRAME = {"input": (1, 576), "state": (2, 1, 128)}
SAMPLED = {"sr": 16000}
PACKAGED = [
    Packaged("silero-vad: silero_vad, a step", "silero_vad", "data/silero_vad.onnx", FRAME, SAMPLED),
    Packaged("silero-vad: 16k_op15, a step", "silero_vad", "data/silero_vad_16k_op15.onnx", FRAME, SAMPLED),
    Packaged("silero-vad: 16k_sequence, 100 steps", "silero_vad", "data/silero_vad_16k_sequence.onnx", {"input": (100, 576)}),
    Packaged("silero-vad: half, a step", "silero_vad", "data/silero_vad_half.onnx", FRAME),
    Packaged("silero-vad: op18_ifless, a step", "silero_vad", "data/silero_vad_op18_ifless.onnx", FRAME, SAMPLED),
    Packaged("silero-vad: openvino_16k, a step", "silero_vad", "data/silero_vad_openvino_16k.onnx"),
    Packaged("magika: standard_v3_3", "magika", "models/standard_v3_3/model.onnx"),
    Packaged("nudenet: 320n", "nudenet", "320n.onnx", {"images": (1, 3, 320, 320)}),
    Packaged(
        "rapidocr: PP-OCRv4_det, 320 x 320", "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}
    ),
    Packaged(
        "rapidocr: PP-OCRv4_rec, 48 x 320", "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}
    ),
    Packaged(
        "rapidocr: mobile_v2.0_cls", "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}
    ),
    Packaged("basic-pitch: nmp", "basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
    Packaged("captcha-whisperer: captcha_crnn", "captcha_whisperer", "models/captcha_crnn.onnx"),
    Packaged("ddddocr: common, 64 x 160", "ddddocr", "common.onnx", {"input1": (1, 1, 64, 160)}),
    Packaged("ddddocr: common_det", "ddddocr", "common_det.onnx"),
    Packaged("ddddocr: common_old (quantised), 64 x 160", "ddddocr", "common_old.onnx", {"input1": (1, 1, 64, 160)}),
    Packaged(
        "arabic-name-romanizer: encoder, 12 characters", "arabic_name_romanizer", "resources/encoder.onnx",
        {"src": (1, 12), "src_mask": (1, 12)}, {"src": 9},
    ),
    Packaged(
        "arabic-name-romanizer: decoder, a step", "arabic_name_romanizer", "resources/decoder.onnx",
        {"memory": (1, 12, 256), "src_mask": (1, 12)}, {"prefix": 9},
    ),
    Packaged("piper-tts: nakdimon, 60 characters", "piper", "hebrew/nakdimon.onnx", {"input_1": (1, 60)}),
    Packaged(
        "piper-tts: tashkeel, 60 characters", "piper", "tashkeel/model.onnx", {"char_inputs": (1, 60), "diac_inputs": (1, 60)},
        {"char_inputs": 9, "diac_inputs": 3, "input_lengths": 60},
    ),
]  # fmt: skip
Feeds = dict[str, np.ndarray[Any, Any]]


def exported() -> Iterator[tuple[str, bytes]]:
    """Writes models of nnc's own."""
    key = nnc.random.key(0)
    resnet = nn.inference_mode(nn.models.resnet18(num_classes=10, small_images=True, key=key))
    spec = nnc.ShapeDtypeStruct
    yield "ResNet-18, batch 1", nnc.onnx.export(lambda x: resnet(x)[0], [spec((1, 3, 32, 32), "float32")])
    lstm = nn.LSTM(64, 128, key=key)
    yield "LSTM 64-128, 50 steps", nnc.onnx.export(lambda x: lstm(x), [spec((50, 8, 64), "float32")])
    mlp = nn.MLP(256, 10, width=512, depth=2, key=key)
    yield "MLP 256-512-512-10, batch 32", nnc.onnx.export(lambda x: mlp(x), [spec((32, 256), "float32")])


def in_packages() -> Iterator[tuple[str, bytes, Packaged]]:
    """Reads models of installed packages."""
    for row in PACKAGED:
        found = find_spec(row.package)
        if found is not None and found.submodule_search_locations:
            path = Path(found.submodule_search_locations[0]) / row.path
            if path.exists():
                yield row.title, path.read_bytes(), row


def draw(data: bytes, row: Packaged | None) -> Feeds:
    """Draws inputs of a model."""
    graph, rng, feeds = onnx.load_from_string(data).graph, np.random.default_rng(0), {}
    weights = {tensor.name for tensor in graph.initializer}
    sizes, integers = (row.sizes, row.integers) if row is not None else ({}, {})
    for value in graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = sizes.get(value.name) or [max(d.dim_value, 1) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if value.name in integers:
            drawn: Any = np.full(shape, integers[value.name])
        else:
            drawn = rng.standard_normal(shape) / 2 if dtype.kind == "f" else rng.integers(1, 100, shape)
        feeds[value.name] = np.asarray(drawn).astype(dtype)
    return feeds


def measure(title: str, data: bytes, row: Packaged | None) -> list[Cell]:
    """Returns a row: milliseconds of both, their ratio, and how far results lie apart."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    model, feeds = nnc.onnx.load(data), draw(data, row)
    arrays = {name: nnc.asarray(value) for name, value in feeds.items()}
    begin = time.perf_counter()
    found = nnc.block_until_ready(model(arrays))
    first = time.perf_counter() - begin
    wanted = session.run(None, feeds)
    apart = max(distance(value, other) for value, other in zip(found, wanted, strict=True))
    ways: list[Callable[[], object]] = [lambda: nnc.block_until_ready(model(arrays)), lambda: session.run(None, feeds)]
    mine, theirs = map(min, take_turns(ways))
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
    """Returns the seconds of processor time that a call of each way takes, in each round."""
    begin = time.process_time()
    ways[0]()
    calls = max(1, round(LEAST / max(time.process_time() - begin, 1e-6)))
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, found in zip(ways, times, strict=True):
            way()  # fills the caches again
            begin = time.process_time()
            for _ in range(calls):
                way()
            found.append((time.process_time() - begin) / calls)
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
        models: list[tuple[str, bytes, Packaged | None]] = [
            (path.stem, path.read_bytes(), None) for path in options.paths
        ]
    else:
        models = [*((title, data, None) for title, data in exported()), *in_packages()]
    rows = [measure(*model) for model in models]
    header = ["model", "nnc, ms", "onnxruntime, ms", "onnxruntime / nnc", "first call, s", "apart", "nnc ran it"]
    print(describe_machine("onnx", "onnxruntime"), "1 thread each", sep="; ")
    print_table("ONNX models", header, rows)
    mean = statistics.geometric_mean(float(row[1]) / float(row[2]) for row in rows)
    print(f"\nnnc takes {mean:.2f} of onnxruntime's time in the geometric mean.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
