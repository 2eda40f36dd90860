"""Kernels in which each thread computes one element, printed and run in the interpreter of PTX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.backends.cuda.compiler.compiler import join, to_ptx
from nnc.backends.cuda.kernels.code import GpuCode
from nnc.base.dtypes import DType, as_dtype
from nnc.graph import Command
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.scalars import scalar
from nnc.testing.devices.ptx import Counts, PtxModule, Region

THREADS = 256
Body = Callable[[GpuCode, Sequence[Value]], Value]


def print_elements(name: str, inputs: Sequence[DType], output: DType, body: Body) -> str:
    """A kernel without a test for the end: there must be as many elements as threads."""
    code = GpuCode(name, ["noalias readonly"] * len(inputs) + ["noalias"], THREADS)
    at = code.add(code.mul(code.special("ctaid.x"), code.integer(THREADS)), code.special("tid.x"))
    places = [
        code.offset(f"%p{i}", code.mul(at, code.integer(as_dtype(dtype).itemsize)))
        for i, dtype in enumerate((*inputs, output))
    ]
    values = [code.load(place, dtype) for place, dtype in zip(places, inputs, strict=False)]
    code.store(places[-1], code.convert(body(code, values), output))
    code.ret()
    return join(["\n".join([*sorted(code.declarations), code.definition()])])


def of_command(command: Command, output: DType, params: Mapping[str, Any]) -> Body:
    """The scalar expression of a command."""
    return lambda code, values: scalar(code, command, values, output, params)


def run_elements(text: str, name: str, arrays: Sequence[Any], output: DType) -> tuple[Any, Counts]:
    """The result for arrays of a multiple of THREADS elements, and counts."""
    out = np.zeros(arrays[0].shape, output)
    regions = [
        Region(f"p{i}", (i + 1) << 24, x.view(np.uint8), writable=x is out) for i, x in enumerate((*arrays, out))
    ]
    entry = PtxModule(to_ptx([text], "sm_90")).entries[name]
    blocks = arrays[0].size // THREADS
    counts = entry.run((blocks, 1, 1), (THREADS, 1, 1), 0, [region.address for region in regions], regions)
    return out, counts
