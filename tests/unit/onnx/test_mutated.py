"""Files with wrong bytes and fields: each runs, or raises a worded error.

`python -m tests.unit.onnx.test_mutated 10000` tries more.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.errors import NncError
from tests.sampling import sampled

onnx = pytest.importorskip("onnx")

from tests.unit.onnx import suite  # noqa: E402

SLOW = 5.0  # seconds of this process's time, in which kernels may be compiled, that a file may take
ODD = [0, 1, -1, 2, -2, 7, 100, 1 << 31, 1 << 40, -(1 << 63), (1 << 63) - 1]
NAMES = ["Conv", "Loop", "If", "Reshape", "Cast", "Tile", "Einsum", "LSTM", "Resize", "SequenceAt", "Nothing", ""]


def flipped(data: bytes, draw: np.random.Generator) -> bytes:
    """Changes bits, removes or inserts a few bytes."""
    found = bytearray(data)
    for _ in range(int(draw.integers(1, 4))):
        place = int(draw.integers(0, len(found)))
        match int(draw.integers(0, 8)):
            case 0:
                del found[place : place + int(draw.integers(1, 8))]
            case 1:
                found[place:place] = draw.bytes(int(draw.integers(1, 4)))
            case _:
                found[place] ^= 1 << int(draw.integers(0, 8))
    return bytes(found) or b"0"


def changed(model: onnx.ModelProto, draw: np.random.Generator) -> bytes:
    """Changes fields: names, operators, attributes, versions. The file keeps its form, and means something wrong."""
    found = onnx.ModelProto()
    found.CopyFrom(model)

    def one(items: Any) -> Any:
        return items[int(draw.integers(0, len(items)))]

    nodes = found.graph.node
    names = [name for node in nodes for name in (*node.input, *node.output)] or ["x"]
    for _ in range(int(draw.integers(1, 3))):
        node = one(nodes)
        match int(draw.integers(0, 8)):
            case 0 if node.input:
                node.input[int(draw.integers(0, len(node.input)))] = one([*names, ""])
            case 1:
                node.op_type = one(NAMES)
            case 2:
                found.opset_import[0].version = int(draw.integers(1, 30))
            case 3 if node.attribute:
                del node.attribute[int(draw.integers(0, len(node.attribute)))]
            case 4 if node.input:
                del node.input[int(draw.integers(0, len(node.input)))]
            case 5 if found.graph.initializer:
                one(found.graph.initializer).dims.append(one(ODD))
            case 6:
                node.input.append(one(names))
            case _ if node.attribute:
                _change(one(node.attribute), one(ODD), draw)
    return bytes(found.SerializeToString())


def _change(attribute: Any, number: int, draw: np.random.Generator) -> None:
    match attribute.type:
        case onnx.AttributeProto.INT:
            attribute.i = number
        case onnx.AttributeProto.FLOAT:
            attribute.f = float(number)
        case onnx.AttributeProto.INTS if attribute.ints:
            attribute.ints[int(draw.integers(0, len(attribute.ints)))] = number
        case onnx.AttributeProto.STRING:
            attribute.s = attribute.s[1:] + b"?"
        case _:
            attribute.type = int(draw.integers(0, 14))


def try_file(data: bytes, inputs: list[object]) -> str:
    """Loads and runs a file; returns how it ended. Errors that are not nnc's pass through."""
    try:
        model = nnc.onnx.load(data)
        model({value.name: given for value, given in zip(model.inputs, inputs, strict=False)})
    except NncError as error:
        return type(error).__name__
    return "ran"


def run(seeds: range, base: int = 0) -> dict[str, int]:
    """Tries a file a seed, each a mutated case of the standard; returns how they ended."""
    ends: dict[str, int] = {}
    cases = suite.cases()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            draw = np.random.default_rng([base, seed])
            case = cases[int(draw.integers(0, len(cases)))]
            data = changed(case.model, draw) if seed % 3 else flipped(case.model.SerializeToString(), draw)
            start = time.process_time()
            try:
                end = try_file(data, [suite._given(value) for value in case.sets[0][0]])
            except Exception as error:
                raise AssertionError(f"seed {base}, {seed}, {case.name}: {type(error).__name__}: {error}") from error
            seconds = time.process_time() - start
            assert seconds < SLOW, f"seed {base}, {seed}, {case.name} takes {seconds:.1f} s"
            ends[end] = ends.get(end, 0) + 1
    return ends


def test_mutated_files_run_or_raise_worded_errors() -> None:
    for seeds in sampled([range(first, first + 100) for first in range(0, 800, 100)], 8):
        ends = run(seeds)
        assert ends.get("FileFormatError", 0) > 5
        assert ends.get("ran", 0) > 5


def test_found_crashes_and_slow_files_end_with_worded_errors() -> None:
    """Seeds of a run of 10,000: values that are missing, an old form of Scan, a pool whose window would take 16 GiB."""
    for seed in (1463, 1823, 5543):
        assert run(range(seed, seed + 1), base=1).keys() <= {"FileFormatError", "UnsupportedError"}


if __name__ == "__main__":
    total: dict[str, int] = {}
    for seed in range(int(sys.argv[1])):
        try:
            found = run(range(seed, seed + 1), base=1)
        except AssertionError as error:
            found = {"failed": 1}
            print(error, flush=True)
        total = {end: total.get(end, 0) + found.get(end, 0) for end in {*total, *found}}
    print(total)
