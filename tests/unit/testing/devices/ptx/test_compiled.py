"""PTX that LLVM writes runs as the same program on the host would: loops, branches, shuffles, shared memory, calls and tables."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.testing.devices.ptx.launching import compile_llvm, launch

ROWS = """
@partial = internal addrspace(3) global [8 x float] poison, align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)

define internal float @warp_sum(float %x) alwaysinline {
entry:
  br label %loop
loop:
  %v = phi float [%x, %entry], [%w, %loop]
  %d = phi i32 [16, %entry], [%e, %loop]
  %o = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %v, i32 %d, i32 31)
  %w = fadd float %v, %o
  %e = lshr i32 %d, 1
  %more = icmp ne i32 %e, 0
  br i1 %more, label %loop, label %end
end:
  ret float %w
}

define ptx_kernel void @rows(ptr noalias readonly align 256 %x, ptr noalias align 256 %y, i32 %n) "nvvm.maxntid"="256" {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %row = mul i32 %b, %n
  %start = icmp slt i32 %t, %n
  br i1 %start, label %loop, label %done
loop:
  %i = phi i32 [%t, %entry], [%i2, %loop]
  %s = phi float [0.0, %entry], [%s2, %loop]
  %at = add i32 %row, %i
  %p = getelementptr float, ptr %x, i32 %at
  %v = load float, ptr %p, align 4
  %s2 = fadd float %s, %v
  %i2 = add i32 %i, 256
  %more = icmp slt i32 %i2, %n
  br i1 %more, label %loop, label %done
done:
  %own = phi float [0.0, %entry], [%s2, %loop]
  %sum = call float @warp_sum(float %own)
  %warp = lshr i32 %t, 5
  %lane = and i32 %t, 31
  %slot = getelementptr float, ptr addrspace(3) @partial, i32 %warp
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %put, label %wait
put:
  store float %sum, ptr addrspace(3) %slot
  br label %wait
wait:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %k = and i32 %t, 7
  %from = getelementptr float, ptr addrspace(3) @partial, i32 %k
  %part = load float, ptr addrspace(3) %from
  %four = call float @warp_sum(float %part)
  %total = fmul float %four, 0.25
  %leader = icmp eq i32 %t, 0
  br i1 %leader, label %out, label %end
out:
  %q = getelementptr float, ptr %y, i32 %b
  store float %total, ptr %q
  br label %end
end:
  ret void
}
"""


def test_rows_are_summed_by_loops_shuffles_and_shared_memory() -> None:
    entry = compile_llvm(ROWS).entries["rows"]
    assert [kind.name for kind in entry.parameters] == ["u64", "u64", "u32"]
    assert (entry.most_threads, entry.shared_bytes) == (256, 32)
    x = np.random.default_rng(0).integers(-9, 9, (5, 700)).astype(np.float32)
    y = np.zeros(5, np.float32)
    counts = launch(entry, 5, 256, [x], [y], 700)
    np.testing.assert_array_equal(y, x.sum(axis=1))
    assert counts.loaded == x.nbytes and counts.stored == y.nbytes
    assert counts.instructions == sum(counts.opcodes.values()) > 5 * 256 * 30
    assert counts.opcodes["bar.sync"] == 5 * 256


def test_coalesced_loads_touch_each_sector_once() -> None:
    entry = compile_llvm(ROWS).entries["rows"]
    x, y = np.ones((2, 1024), np.float32), np.zeros(2, np.float32)
    counts = launch(entry, 2, 256, [x], [y], 1024)
    assert counts.sectors == x.nbytes // 32 + 2
    assert counts.conflicts == 0


BRANCHES = """
@table = internal addrspace(4) constant [4 x float] [float 1.5, float -2.0, float 3.0, float 0.5], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define internal float @power(float %x, i32 %n) noinline {
entry:
  %stack = alloca [4 x float]
  %top = and i32 %n, 3
  %place = getelementptr [4 x float], ptr %stack, i32 0, i32 %top
  store volatile float %x, ptr %place
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k2, %loop]
  %v = phi float [1.0, %entry], [%v2, %loop]
  %again = load volatile float, ptr %place
  %v2 = fmul float %v, %again
  %k2 = add i32 %k, 1
  %more = icmp sle i32 %k2, %n
  br i1 %more, label %loop, label %end
end:
  ret float %v2
}

define ptx_kernel void @branches(ptr %x, ptr %y) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr %x, i32 %t
  %v = load float, ptr %p
  %k = and i32 %t, 7
  switch i32 %k, label %other [i32 0, label %a i32 1, label %b i32 2, label %c i32 3, label %d i32 4, label %e]
a:
  br label %end
b:
  %vb = fadd float %v, 1.0
  br label %end
c:
  %vc = call float @power(float %v, i32 %t)
  br label %end
d:
  %j = and i32 %t, 3
  %q = getelementptr float, ptr addrspace(4) @table, i32 %j
  %w = load float, ptr addrspace(4) %q
  %vd = fmul float %v, %w
  br label %end
e:
  %ve = call float @power(float %v, i32 3)
  br label %end
other:
  %vo = fneg float %v
  br label %end
end:
  %r = phi float [%v, %a], [%vb, %b], [%vc, %c], [%vd, %d], [%ve, %e], [%vo, %other]
  %o = getelementptr float, ptr %y, i32 %t
  store float %r, ptr %o
  ret void
}
"""


def test_threads_that_branch_call_and_use_their_stacks_come_together_again() -> None:
    entry = compile_llvm(BRANCHES).entries["branches"]
    x = np.random.default_rng(1).normal(size=50).astype(np.float32)
    y = np.zeros_like(x)
    launch(entry, 1, 50, [x], [y])
    table, expected = np.array([1.5, -2.0, 3.0, 0.5], np.float32), np.empty_like(x)
    for t, v in enumerate(x):
        power = lambda n, v=v: np.multiply.accumulate(np.full(n + 1, v, np.float32))[-1]
        cases = {0: v, 1: v + np.float32(1), 2: power(t), 3: v * table[t % 4], 4: power(3)}
        expected[t] = cases.get(t % 8, -v)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90", "sm_100"])
def test_bfloat16_is_converted_as_numbers_are_rounded(cpu: str) -> None:
    entry = compile_llvm(
        """
        declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
        define ptx_kernel void @half(ptr readonly noalias align 256 %x, ptr noalias align 256 %y) {
          %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
          %p = getelementptr <8 x bfloat>, ptr %x, i32 %t
          %v = load <8 x bfloat>, ptr %p, align 16
          %w = fpext <8 x bfloat> %v to <8 x float>
          %s = fmul <8 x float> %w, %w
          %r = fptrunc <8 x float> %s to <8 x bfloat>
          %q = getelementptr <8 x bfloat>, ptr %y, i32 %t
          store <8 x bfloat> %r, ptr %q, align 16
          ret void
        }""",
        cpu,
    ).entries["half"]
    x = np.random.default_rng(2).normal(size=8 * 32).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    half = (x >> 16).astype(np.uint16)
    y = np.zeros_like(half)
    counts = launch(entry, 1, 32, [half], [y])
    square = x.view(np.float32) ** 2
    bits = square.view(np.uint32)
    expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(y, expected)
    assert counts.waste == 1.0


def test_a_part_of_a_packed_number_may_be_unset_where_it_is_not_used() -> None:
    module = compile_llvm(
        """
        define ptx_kernel void @part(ptr %x, ptr %y) {
          %i = load i16, ptr %x
          %v = insertelement <2 x i16> poison, i16 %i, i32 0
          %w = add <2 x i16> %v, <i16 5, i16 6>
          %r = extractelement <2 x i16> %w, i32 0
          store i16 %r, ptr %y
          ret void
        }""",
        "sm_100",
    )
    y = np.zeros(1, np.int16)
    counts = launch(module.entries["part"], 1, 1, [np.array([7], np.int16)], [y])
    assert y[0] == 12 and counts.opcodes["add.s16x2"] == 1
