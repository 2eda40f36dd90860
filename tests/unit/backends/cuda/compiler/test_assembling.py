"""LLVM's text of kernels becomes PTX; texts that LLVM does not take are told, and cost nobody else anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cuda.compiler.compiler import PtxCompiler, join, to_ptx
from nnc.errors import InternalError
from nnc.testing.devices.ptx import PtxModule, Region

TID = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
SQUARES = f"""{TID}
define ptx_kernel void @squares(ptr noalias readonly align 16 %p0, ptr align 16 %p1) nounwind "nvvm.maxntid"="256" {{
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = zext i32 %tid to i64
  %o = shl i64 %i, 4
  %a = getelementptr i8, ptr %p0, i64 %o
  %b = getelementptr i8, ptr %p1, i64 %o
  %x = load <4 x float>, ptr %a, align 16
  %m = fmul <4 x float> %x, %x
  %y = fadd <4 x float> %m, %x
  store <4 x float> %y, ptr %b, align 16
  ret void
}}
"""
WGMMA = """declare void @llvm.nvvm.wgmma.fence.sync.aligned()
define ptx_kernel void @newer() {
  call void @llvm.nvvm.wgmma.fence.sync.aligned()
  ret void
}
"""
FOREIGN = """declare <4 x float> @llvm.x86.sse.rcp.ps(<4 x float>)
define ptx_kernel void @foreign(ptr align 16 %p0) {
  %x = load <4 x float>, ptr %p0, align 16
  %y = call <4 x float> @llvm.x86.sse.rcp.ps(<4 x float> %x)
  store <4 x float> %y, ptr %p0, align 16
  ret void
}
"""


def test_ptx_runs_with_each_operation_rounded() -> None:
    x = np.random.default_rng(0).normal(size=1024).astype(np.float32)
    out = np.zeros_like(x)
    regions = [Region("x", 1 << 20, x.view(np.uint8), writable=False), Region("out", 1 << 21, out.view(np.uint8))]
    squares = PtxModule(to_ptx([SQUARES], "sm_90")).entries["squares"]
    counts = squares.run((1, 1, 1), (256, 1, 1), 0, [1 << 20, 1 << 21], regions)
    assert np.array_equal(out, x * x + x)  # a contracted product would have other bits
    assert counts.waste == 1 and counts.opcodes["ld.global.nc.v2.b64"] + counts.opcodes["ld.global.nc.v4.b32"] == 256


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_each_processor_is_named_in_its_text(target: str) -> None:
    assert f".target {target}" in to_ptx([SQUARES], target)


def test_a_text_that_llvm_does_not_take_is_told_with_the_kernel() -> None:
    with pytest.raises(InternalError, match=r"squares: .*expected instruction opcode"):
        to_ptx([SQUARES.replace("fadd", "fadx")], "sm_90")


def test_an_instruction_that_the_processor_lacks_costs_nobody_else_anything() -> None:
    apart = PtxCompiler("sm_90")
    with pytest.raises(InternalError, match="while it compiles newer for sm_90: it uses what sm_90 lacks"):
        apart.compile_all([SQUARES, WGMMA])
    assert ".entry squares" in apart.compile_all([SQUARES])[0]
    assert ".entry newer" in to_ptx([WGMMA], "sm_90a")
    found = compiler()
    assert found is not None and found.works()


def test_an_intrinsic_of_another_kind_of_processor_is_refused() -> None:
    apart = PtxCompiler("sm_90")
    with pytest.raises(InternalError, match="while it compiles foreign for sm_90"):
        apart.compile_all([SQUARES, FOREIGN])
    assert ".entry squares" in apart.compile_all([SQUARES])[0]


def test_ptx_is_kept_in_files(tmp_path: Path, written: Callable[[], None]) -> None:
    first, second = (PtxCompiler("sm_90", tmp_path) for _ in range(2))
    made = first.compile_all([SQUARES])
    written()
    other = SQUARES.replace("fmul", "fdiv")
    assert second.compile_all([other, SQUARES, SQUARES])[1:] == made * 2 and (first.compiled, second.compiled) == (1, 1)
    written()
    for file in tmp_path.glob("*/objects/*"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")  # a damaged entry is none
    third = PtxCompiler("sm_90", tmp_path)
    assert third.compile_all([SQUARES]) == made and third.compiled == 1
    assert ".target sm_80" in PtxCompiler("sm_80", tmp_path).compile_all([SQUARES])[0]


def test_texts_are_joined_with_each_declaration_once() -> None:
    other = SQUARES.replace("@squares", "@others")
    assert join([SQUARES, other]).count(TID) == 1
    ptx = to_ptx([SQUARES, other], "sm_90")
    assert ".entry squares" in ptx and ".entry others" in ptx
