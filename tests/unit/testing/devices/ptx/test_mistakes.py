"""Mistakes that are planted in kernels are found, and the error names the instruction, the thread and the operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.errors import DeviceError
from nnc.testing.devices.ptx import Entry, PtxModule, Region
from tests.unit.testing.devices.ptx.launching import BASE, kernel, launch, regions_of

N = 64


def fails(body: str, message: str, *, pointers: int = 2, block: Any = N, grid: Any = 1, extra: str = "") -> None:
    """Runs statements on `x0`, which is filled with 1.0, and `y1`, which is not, and expects an error."""
    inputs, outputs = [np.ones(N)], [np.zeros(N) for _ in range(pointers - 1)]
    with pytest.raises(DeviceError, match=message) as caught:
        launch(kernel(body, pointers, extra), grid, block, inputs, outputs)
    assert str(caught.value).startswith("k: `") and "Fix: " in str(caught.value)
    assert not any(output.any() for output in outputs)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "ld.global.b64 %rd1, [%a0+8];",
            r"reads 8 bytes at 0x700000000200, outside of all regions; x0 has 512 bytes.*thread \(63, 0, 0\)",
        ),
        ("ld.global.b64 %rd1, [%a0+-8];", r"x0 begins 8 bytes behind it, thread \(0, 0, 0\) of block \(0, 0, 0\)"),
        ("ld.global.v2.b64 {%rd1, %rd2}, [%a0];", r"no multiple of 16, thread \(1, 0, 0\)"),
        ("ld.global.b32 %r1, [%a0+2];", r"no multiple of 4"),
        ("ld.global.b64 %rd1, [%a1];", r"reads byte 0 of y1, which nobody wrote, thread \(0, 0, 0\)"),
        ("ld.global.b64 %rd1, [%a0]; st.global.b64 [%a0], %rd1;", "writes byte 0 of x0, which is not writable"),
        ("st.global.b64 [%b1], %b1;", r"writes byte 0 of y1, which another thread writes, too, a race"),
        (
            "st.global.b64 [%a1], %b1; ld.global.b64 %rd1, [%b1+8];",
            r"reads byte 8 of y1, which another thread wrote, a race, thread \(0, 0, 0\)",
        ),
        (
            "st.global.b64 [%a1], %b1; ld.global.nc.b64 %rd1, [%a1];",
            "reads byte 0 of y1, which the kernel writes, as constant",
        ),
        (
            "st.global.b64 [%a1], %b1; ld.global.b64 %rd1, [%a1]; atom.global.add.u64 %rd2, [%b1], %rd1;",
            "updates byte 0 of y1, which another thread wrote",
        ),
        ("add.s32 %r1, %r2, 1;", r"reads %r2, which is not set, thread \(0, 0, 0\)"),
        (
            "setp.lt.u32 %p1, %t3, 3; @%p1 mov.u32 %r2, 1; add.s32 %r1, %r2, 1;",
            r"reads %r2, which is not set, thread \(3, 0, 0\)",
        ),
        ("mov.b64 %rd1, {%r2, %r3}; add.s64 %rd2, %rd1, 1;", r"reads %rd1, which is not set, thread \(0, 0, 0\)"),
        ("mov.u32 %r3, %r2; add.s32 %r1, %r3, 1;", r"reads %r3, which is not set"),
        (
            "setp.lt.u32 %p1, %t3, 9; @%p1 bra $L; bar.sync 0; $L:",
            r"bar.sync 0` runs without all threads of the block, of which this one is missing, thread \(0, 0, 0\)",
        ),
        ("setp.lt.u32 %p1, %t3, 9; @%p1 ret; bar.sync 0;", r"bar.sync 0` runs without all threads"),
        (
            "setp.lt.u32 %p1, %t3, 9; @%p1 bra $L; shfl.sync.bfly.b32 %r1, %t3, 1, 31, -1; $L:",
            r"shfl.sync.* runs without all lanes of a warp that it names, of which this one is missing, thread \(0, 0, 0\)",
        ),
        (
            "setp.lt.u32 %p1, %t3, 9; @%p1 bra $L; vote.sync.any.pred %p2, %p1, -1; $L:",
            "vote.sync.any.pred.* runs without all lanes",
        ),
        ("shfl.sync.idx.b32 %r1, %t3, 0, 31, 7;", r"runs without all lanes"),
        (
            "setp.lt.u32 %p1, %t3, 8; @!%p1 ret; shfl.sync.idx.b32 %r1, %t3, 9, 31, 255;",
            "reads from a lane that does not take part|runs without",
        ),
        (
            "brx.idx %t3, $T; $A: ret; $B: ret; $T: .branchtargets $A, $B;",
            r"branches to entry 2 of a table of 2, thread \(2, 0, 0\)",
        ),
        ("trap;", "stops the kernel"),
        ("$L: bra.uni $L;", "too many instructions"),
    ],
)
def test_a_mistake_is_found(body: str, message: str) -> None:
    inputs, outputs = [np.ones(N)], [np.zeros(N)]
    regions = regions_of(inputs, outputs)
    with pytest.raises(DeviceError, match=message) as caught:
        kernel(body, 2).run((1, 1, 1), (N, 1, 1), 0, [each.address for each in regions], regions, most_steps=1000)
    assert str(caught.value).startswith("k: `") and "Fix: " in str(caught.value)
    assert not outputs[0].any() and regions[1].is_filled is not None and not regions[1].is_filled.any()


SHARED = ".shared .align 16 .b8 part[512];"
OWN = "mov.u64 %rd1, part; mul.wide.u32 %rd2, %t3, 8; add.s64 %rd3, %rd1, %rd2; ld.global.b64 %rd4, [%a0];"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.shared.b64 %rd5, [%rd3];", "reads byte 0 of part in shared memory, which nobody wrote"),
        ("st.shared.b64 [%rd3+8], %rd4;", r"writes 8 bytes at 512 of 512 bytes of shared memory, thread \(63, 0, 0\)"),
        ("st.shared.b64 [%rd3+4], %rd4;", "no multiple of 8"),
        (
            "st.shared.b64 [%rd3], %rd4; ld.shared.b64 %rd5, [part];",
            r"reads byte 0 of part in shared memory, which another thread wrote, a race, thread \(1, 0, 0\)",
        ),
        ("st.shared.b64 [part], %rd4;", "which another thread writes, too, a race"),
        (
            "st.shared.b64 [%rd3], %rd4; bar.sync 0; ld.shared.b64 %rd5, [part]; st.shared.b64 [%rd3], %rd4;",
            r"writes byte 0 of part in shared memory, which another thread reads, a race, thread \(0, 0, 0\)",
        ),
        (
            "st.shared.b64 [%rd3], %rd4; bar.warp.sync -1; ld.shared.b64 %rd5, [part];",
            r"reads byte 0 of part in shared memory, which another thread wrote, a race, thread \(32, 0, 0\)",
        ),
    ],
)
def test_a_mistake_in_shared_memory_is_found(body: str, message: str) -> None:
    fails(OWN + body, message, extra=SHARED)


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.b64 [%rd3], %rd4; bar.sync 0; ld.shared.b64 %rd5, [part]; bar.sync 0; st.shared.b64 [%rd3], %rd5;",
        "st.shared.b64 [%rd3], %rd4; bar.warp.sync -1; xor.b64 %rd3, %rd3, 8; ld.shared.b64 %rd5, [%rd3];",
        "st.shared.b64 [%rd3], %rd4; ld.shared.b64 %rd5, [%rd3]; st.shared.b64 [%rd3], %rd5;",
        "st.shared.b64 [%rd3], %rd4; cvta.shared.u64 %rd5, %rd3; ld.b64 %rd6, [%rd5];",
    ],
)
def test_accesses_that_barriers_order_are_no_races(body: str) -> None:
    launch(kernel(OWN + body, 1, SHARED), 2, 32, [np.ones(64)], [])


def test_a_barrier_orders_no_threads_of_other_blocks() -> None:
    body = "st.global.b64 [%a1], %b1; bar.sync 0; ld.global.b64 %rd1, [%b1];"
    launch(kernel(body, 2), 1, 64, [np.ones(64)], [np.zeros(64)])
    fails(
        body,
        r"reads byte 0 of y1, which another thread wrote, a race, thread \(0, 0, 0\) of block \(1, 0, 0\)",
        block=32,
        grid=2,
    )


def test_threads_that_come_to_a_barrier_on_different_ways_wait_for_each_other() -> None:
    """The text has the way of some threads behind the barrier, and it leads back to it."""
    body = """
        setp.lt.u32 %p1, %t3, 9; mov.u32 %r1, 1; @%p1 bra $FAR;
        $NEAR: shfl.sync.bfly.b32 %r3, %r1, 31, 31, -1; bar.sync 0; cvt.u64.u32 %rd1, %r3; st.global.b64 [%a0], %rd1; ret;
        $FAR: mov.u32 %r1, 2; bra.uni $NEAR;
    """
    y = np.zeros(64, np.int64)
    launch(kernel(body, 1), 1, 64, [], [y])
    np.testing.assert_array_equal(y, np.where((np.arange(64) < 32) & (np.arange(64) >= 23), 2, 1))


def test_a_region_in_place_is_one_memory() -> None:
    x = np.arange(64.0)
    regions = [
        Region("x", BASE, x.view(np.uint8), writable=False),
        Region("y", BASE, x.view(np.uint8)),
        Region("z", BASE + 256, x[32:].view(np.uint8), np.zeros(256, bool)),
    ]
    body = "ld.global.b64 %rd1, [%a0]; st.global.b64 [%a1], %rd1;"
    kernel(body, 2).run((1, 1, 1), (64, 1, 1), 0, [BASE, BASE], regions[:2])
    shifted = "ld.global.b64 %rd1, [%a0+8]; st.global.b64 [%a1], %rd1;"
    with pytest.raises(DeviceError, match="writes byte 8 of x, which another thread reads, a race"):
        kernel(shifted, 2).run((1, 1, 1), (32, 1, 1), 0, [BASE, BASE], regions[:2])
    constant = "ld.global.nc.b64 %rd1, [%a0]; st.global.b64 [%a1], %rd1;"
    with pytest.raises(DeviceError, match="writes byte 0 of x, which the kernel read as constant"):
        kernel(constant, 2).run((1, 1, 1), (32, 1, 1), 0, [BASE, BASE], regions[:2])
    np.testing.assert_array_equal(x, np.arange(64.0))


def test_regions_that_overlap_without_their_bytes_are_refused() -> None:
    regions = [Region("x", BASE, np.zeros(64, np.uint8)), Region("y", BASE + 32, np.zeros(64, np.uint8))]
    with pytest.raises(DeviceError, match="the regions x and y overlap, but not their bytes"):
        kernel("", 1).run((1, 1, 1), (32, 1, 1), 0, [BASE], regions)


def test_a_launch_marks_the_bytes_that_it_writes() -> None:
    y = np.zeros(64)
    (region,) = regions_of([], [y])
    entry = kernel("setp.gt.u32 %p1, %t3, 3; @%p1 st.global.b64 [%a0], %b0;", 1)
    entry.run((1, 1, 1), (8, 1, 1), 0, [region.address], [region])
    assert region.is_filled is not None
    np.testing.assert_array_equal(
        region.is_filled.reshape(-1, 8).all(axis=1), (np.arange(64) > 3) & (np.arange(64) < 8)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tex.2d.v4.f32.f32 {%r1}, [%rd1];", "the opcode tex"),
        ("add.odd.f32 %r1, %r2, %r3;", "the modifier .odd"),
        ("add.f32 %r1, %q2, %r3;", "%q2"),
        ("bra $NOWHERE;", "no such label"),
        ("call.uni foo;", "it calls no function of the module"),
        ("mov.u32 %r1, thing;", "nothing of this name is declared"),
    ],
)
def test_an_unknown_text_is_an_error_before_anything_runs(text: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        kernel(text, 0).check()


def entry_of(text: str) -> Entry:
    return PtxModule(text).entries["k"]


def test_a_launch_that_does_not_fit_the_kernel_is_refused() -> None:
    entry = entry_of(".visible .entry k(.param .u64 p) .maxntid 64 { ret; }")
    with pytest.raises(DeviceError, match="it takes 1 parameters, and 0 are given"):
        entry.run((1, 1, 1), (32, 1, 1), 0, [], [])
    pointer = entry_of(".visible .entry k(.param .u64 .ptr .global .align 256 p) { ret; }")
    pointer.run((1, 1, 1), (32, 1, 1), 0, [512], [])
    with pytest.raises(DeviceError, match="p is 0x210, and declared as a multiple of 256"):
        pointer.run((1, 1, 1), (32, 1, 1), 0, [528], [])
    with pytest.raises(DeviceError, match="of 1 to 64 threads"):
        entry.run((1, 1, 1), (128, 1, 1), 0, [0], [])


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(DeviceError, match="the function calls itself"):
        entry_of(".func f() { call.uni f; ret; } .visible .entry k() { call.uni f; ret; }").check()
