"""The last, shorter vector of a row: kernels write their elements and not a byte beside them, in every dtype and length.

LLVM turns a masked store into a scalar one where it finds out that the mask has a single lane, which it does where a program takes
a kernel in and unrolls its loops. Kernels are therefore compiled in two ways: alone, and as parts of one program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.graph import TensorSpec
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import View
from tests.figures import HERE
from tests.sampling import sampled
from tests.unit.backends.cpu.against_reference import REAL

NDArray = np.ndarray[Any, Any]
ROWS = 3
ZONE = 64  # bytes of red zone on either side of a result: one vector
PATTERN = 0xA5


def cast(wide: DType, narrow: DType, x: Any, y: Any) -> Any:
    return (x | y if dtypes.is_bool(wide) else x * y).astype(narrow)


def row_maximum(wide: DType, narrow: DType, x: Any, y: Any) -> Any:
    most = nnp.max(y, axis=1, keepdims=True)
    return most | x if dtypes.is_bool(wide) else most * x


def column_sums(wide: DType, narrow: DType, x: Any, y: Any) -> Any:
    return nnp.sum(y, axis=0).astype(narrow)


def row_sums(wide: DType, narrow: DType, x: Any, y: Any) -> Any:
    return nnp.sum(y * x, axis=1).astype(narrow)


BODIES = (cast, row_maximum, column_sums, row_sums)


@dataclass(frozen=True)
class Kernel:
    """A kernel of x, of shape (n,), and y, of shape (ROWS, n)."""

    native: Native
    function: Callable[[Any, Any], Any]
    inputs: tuple[TensorSpec, TensorSpec]
    output: TensorSpec

    @classmethod
    def of(cls, body: Callable[..., Any], wide: DType, narrow: DType, n: int, vector_bytes: int) -> Kernel:
        function = partial(body, wide, narrow)
        x, y = TensorSpec((n,), wide), TensorSpec((ROWS, n), wide)
        graph = nnc.make_graph(function)(*(nnc.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in (x, y)))
        output = graph.outputs[0].spec
        views = [View.whole(i, spec) for i, spec in enumerate((x, y, output))]
        return cls(
            print_graph(graph, views[:2], views[2:], replace(HERE, vector_bytes=vector_bytes)), function, (x, y), output
        )

    def check(self, call: Callable[..., int]) -> None:
        """Calls it with pointers, and checks its result."""
        x, y = ((np.arange(spec.size) % 3 + 1).reshape(spec.shape).astype(spec.dtype) for spec in self.inputs)
        size = self.output.nbytes
        memory = np.full(ZONE + size + ZONE, PATTERN, np.uint8)
        assert call(x.ctypes.data, y.ctypes.data, memory.ctypes.data + ZONE, *self.native.numbers) == 0
        expected = np.asarray(self.function(nnc.asarray(x), nnc.asarray(y)))
        found = memory[ZONE : ZONE + size].view(self.output.dtype).reshape(self.output.shape)
        what = f"{self.function} of {self.inputs[1]}"
        np.testing.assert_array_equal(found, expected, err_msg=what)
        assert (memory[:ZONE] == PATTERN).all() and (memory[ZONE + size :] == PATTERN).all(), what


def kernels(narrow: str, vector_bytes: int, sizes: Callable[[int], Sequence[int]]) -> Iterator[Kernel]:
    """Kernels whose results have a dtype, computed in this and in wider ones; `sizes` gives the lengths of rows by the lanes."""
    target = dtypes.BY_NAME[narrow]
    for wide in dict.fromkeys((narrow, "float32", "int64")):
        source = dtypes.BY_NAME[wide]
        if source.itemsize < target.itemsize:
            continue
        for body in BODIES if wide == narrow else (cast,):
            for n in sizes(vector_bytes // (source.itemsize if body is cast else max(source.itemsize, 4))):
                yield Kernel.of(body, source, target, n, vector_bytes)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("name", REAL)
def test_kernels_alone_write_their_elements_and_nothing_beside_them(name: str, vector_bytes: int) -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    made = list(
        kernels(name, vector_bytes, lambda lanes: sorted({1, max(lanes - 2, 1), lanes - 1, lanes + 1, 4 * lanes + 1}))
    )
    for kernel, loaded in zip(made, jit.load([kernel.native for kernel in made]), strict=True):
        parameters = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * len(kernel.native.numbers)
        kernel.check(ctypes.CFUNCTYPE(ctypes.c_int64, *parameters)(loaded.address))


@pytest.mark.parametrize("name", REAL)
def test_kernels_that_a_program_takes_in_write_their_elements_and_nothing_beside_them(name: str) -> None:
    """LLVM 22 wrote the bytes of the wider number for the one element behind a whole vector."""
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")

    def sizes(lanes: int) -> Sequence[int]:
        tails = sampled(range(1, lanes), 3)  # an odd step meets even and odd tails, and the one element
        return (*range(1, min(lanes, 8)), lanes, *(lanes + tail for tail in tails), 2 * lanes + 1)

    made = list(kernels(name, 64, sizes))
    entry = jit.load_entry(program(made), {}, None)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3)(entry.address)
    for number, kernel in enumerate(made):
        kernel.check(partial(call, number))


def program(made: Sequence[Kernel]) -> str:
    """The text of a program (number, x, y, result) that takes kernels in, and runs the one of a number."""
    declarations: set[str] = set()
    bodies: dict[str, str] = {}
    for kernel in made:
        assert not kernel.native.numbers and not kernel.native.calls
        lines = kernel.native.code.splitlines()
        declarations |= {line for line in lines if line.startswith("declare")}
        body = "\n".join(line for line in lines if not line.startswith("declare"))
        body = body.replace("define i64", "define internal i64").replace("nounwind {", "alwaysinline nounwind {")
        bodies[kernel.native.name] = body
    cases = " ".join(f"i64 {i}, label %case{i}" for i in range(len(made)))
    entry = [
        "define i64 @ENTRY(i64 %number, ptr %x, ptr %y, ptr %out) {",
        "start:",
        f"  switch i64 %number, label %none [{cases}]",
    ]
    for i, kernel in enumerate(made):
        entry += [
            f"case{i}:",
            f"  %status{i} = call i64 @{kernel.native.name}(ptr %x, ptr %y, ptr %out)",
            f"  ret i64 %status{i}",
        ]
    return "\n".join([*sorted(declarations), *bodies.values(), *entry, "none:", "  ret i64 1", "}", ""])


@pytest.mark.parametrize("n", [17, 129])
def test_rows_times_the_result_of_a_loop_are_right_to_the_first_element(n: int) -> None:
    def rows_times_carried(a: Any) -> Any:
        b = nnp.sin(a)
        return nnc.fori_loop(0, 3, lambda i, carried: nnp.tanh(carried), b[0]) * b

    a = np.random.default_rng(0).normal(size=(4, n)).astype(ml_dtypes.bfloat16)
    found, expected = nnc.compile(rows_times_carried)(a), rows_times_carried(nnc.asarray(a))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
