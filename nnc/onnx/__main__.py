"""`python -m nnc.onnx MODEL` prints a model's inputs, outputs, weights and operators, and how it runs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import nnc
from nnc.errors import NncError
from nnc.onnx.callable import OnnxFunction, load, spec_text
from nnc.onnx.model import ModelGraph, Node, Value
from nnc.onnx.operators.families import find

ROUNDS = 20  # calls of which the fastest counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status: 0, or 1 where the model cannot be read or run."""
    parser = argparse.ArgumentParser(prog="python -m nnc.onnx", description="Describes a model in the ONNX format.")
    parser.add_argument("model", help="the path of the file")
    parser.add_argument("--run", action="store_true", help="run it on random numbers and say how it ran")
    parser.add_argument("--time", action="store_true", help="time calls, beside onnxruntime where that is installed")
    parser.add_argument("--graph", metavar="OUT.html", help="draw the graph that is compiled")
    parser.add_argument(
        "--size", metavar="NAME=N", action="append", default=[], help="the size of a named dimension (default: 1)"
    )
    options = parser.parse_args(arguments)
    try:
        model = load(options.model)
        print("\n".join(describe(model)))
        feeds = random_feeds(model.inputs, dict(map(_size, options.size)))
        if options.run or options.time:
            found = model(feeds)
            for value, output in zip(model.outputs, found, strict=True):
                print(f"  {value.name}: {getattr(output, 'dtype', 'a sequence')}{list(getattr(output, 'shape', ()))}")
            print(model.explain())
        if options.time:
            print("\n".join(times(model, feeds, options.model)))
        if options.graph:
            names = list(feeds)
            graph = nnc.make_graph(lambda *values: model(dict(zip(names, values, strict=True))))(*feeds.values())
            nnc.view(graph).save(options.graph)
    except (NncError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size.isdigit():
        raise ValueError(f"--size {text}: write the name of a dimension and its size, such as batch=8.")
    return name, int(size)


def describe(model: OnnxFunction) -> list[str]:
    """Returns the lines of a model: inputs, outputs, weights, and operators with their counts."""
    graph = model.graph
    held = sum(array.nbytes for array in graph.weights.values())
    counts = Counter(f"{node.domain}:{node.operator}".lstrip(":") for node in nodes_of(graph))
    missing = sorted({node.operator for node in nodes_of(graph) if find(node) is None and not model.defines(node)})
    lines = ["inputs", *(f"  {shown(value)}" for value in model.inputs)]
    lines += ["outputs", *(f"  {shown(value)}" for value in model.outputs)]
    lines += [f"{len(graph.weights)} weights of {held:,} bytes"]
    lines += ["operators", *(f"  {name} {count}" for name, count in counts.most_common())]
    return lines + (["without a definition: " + ", ".join(missing)] if missing else [])


def nodes_of(graph: ModelGraph) -> list[Node]:
    """Returns all nodes, those of sub-graphs included."""
    found = []
    for node in graph.nodes:
        found.append(node)
        for value in node.attributes.values():
            if isinstance(value, ModelGraph):
                found += nodes_of(value)
    return found


def shown(value: Value) -> str:
    """Returns the text of an input or output."""
    return f"{value.name}: {spec_text(value)}"


def random_feeds(inputs: Sequence[Value], sizes: dict[str, int]) -> dict[str, Any]:
    """Returns arrays for inputs: normal numbers, or integers of 0 and 1.

    Raises:
        ValueError: an input is no tensor of numbers.
    """
    draw, feeds = np.random.default_rng(0), {}
    for value in inputs:
        if value.dtype is None:
            raise ValueError(
                f"the input {value.name!r} is no tensor of numbers: call nnc.onnx.load(...) with your own."
            )
        shape = [size if isinstance(size, int) else sizes.get(size or "", 1) for size in value.shape or ()]
        numbers = draw.standard_normal(shape) if value.dtype.kind in "fV" else draw.integers(0, 2, shape)
        feeds[value.name] = np.asarray(numbers).astype(value.dtype)
    return feeds


def times(model: OnnxFunction, feeds: dict[str, Any], path: str) -> list[str]:
    """Returns lines with the milliseconds of a call, on one thread."""
    nnc.set_num_threads(1)
    arrays = {name: nnc.asarray(value) for name, value in feeds.items()}
    lines = [f"nnc: {fastest(lambda: nnc.block_until_ready(model(arrays))):.3f} ms"]
    if find_spec("onnxruntime") is None:
        return [*lines, "onnxruntime is not installed."]
    onnxruntime = import_module("onnxruntime")  # optional, and slow to import
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(Path(path)), settings, providers=["CPUExecutionProvider"])
    return [*lines, f"onnxruntime: {fastest(lambda: session.run(None, feeds)):.3f} ms"]


def fastest(call: Any) -> float:
    """Returns the milliseconds of the fastest of some calls."""
    call()
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return 1000 * min(found)


if __name__ == "__main__":
    sys.exit(main())
