"""Instructions of machine code for an element, of kernels on 4,096 rows of 1,024: figures that a change of the printer shows.

An H100 has time for about 90 instructions an element of float32 that is read and written, and for 45 of bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cuda.compiler.compiler import to_ptx
from nnc.backends.cuda.compiler.linking import find_linker
from nnc.base.dtypes import bfloat16
from tests.devices.test_instructions_on_ptx import layer_norm, softmax_gradient
from tests.unit.backends.cuda.compiler.test_assembling import SQUARES
from tests.unit.backends.cuda.machine_code import count_instructions

ROWS, COLUMNS = 4096, 1024

CASES: dict[str, tuple[Callable[..., Any], int, float, float]] = {
    # function, vectors of a row that it takes; the most instructions in float32 and in bfloat16
    "chain": (lambda x, y: nnp.exp(nnp.tanh(x) * 0.5) * nn.sigmoid(y), 0, 50, 51),
    "layer norm": (layer_norm, 2, 38.5, 38),
    "softmax gradient": (softmax_gradient, 0, 8, 11),
    "norm, gelu, softmax": (lambda x, s, b: nn.softmax(nn.gelu(layer_norm(x, s, b))), 2, 87, 86),
    "norm, gelu by erfc, softmax": (
        lambda x, s, b: nn.softmax(nn.gelu(layer_norm(x, s, b), approximate=False)), 2, 118, 119,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_take_no_more_instructions_than_noted(name: str, dtype: Any) -> None:
    function, vectors, single, half = CASES[name]
    shapes = [(ROWS, COLUMNS)] + [(COLUMNS,)] * vectors if vectors else [(ROWS, COLUMNS)] * 2
    arrays = nnc.device_put([np.ones(shape, dtype) for shape in shapes], "ptx:0")
    executable, _ = nnc.compile(function).find(*arrays)
    assert executable is not None
    kernels = {kernel.name: kernel for kernel in executable._program.printed.values()}
    launches = {kernel.function(launch): launch for kernel in kernels.values() for launch in kernel.launches}
    linker = find_linker()
    assert linker is not None, "the extra `test` brings nvidia-nvjitlink"
    counts = count_instructions(linker.link(to_ptx([x.code for x in kernels.values()], "sm_90"), "sm_90").cubin)
    found = sum(counts[f] * np.prod(x.grid) * np.prod(x.block) for f, x in launches.items()) / (ROWS * COLUMNS)
    noted = single if dtype == "float32" else half
    assert noted * 0.9 <= found <= noted, "write the new figure down, if it is wanted"


def test_padding_is_not_counted() -> None:
    linker = find_linker()
    assert linker is not None
    counts = count_instructions(linker.link(to_ptx([SQUARES], "sm_90"), "sm_90").cubin)
    assert counts.keys() == {"squares"} and 10 <= counts["squares"] <= 30
