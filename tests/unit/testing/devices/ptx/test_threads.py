"""Threads of a warp, a block and a grid: shuffles, votes, atomic updates, memory of every space, shapes of launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnc.testing.devices.ptx import PtxModule
from nnc.testing.devices.ptx.counts import count_conflicts
from tests.unit.testing.devices.ptx.launching import compute, kernel, launch, regions_of

COUNT = 64
few = settings(max_examples=10, deadline=None)


def shuffled(mode: str, lane: int, by: int, control: int) -> tuple[int, bool]:
    """PTX's definition of the lane that a shuffle reads, and whether it is in range."""
    clamp, segment = control & 31, control >> 8 & 31
    top, bottom = lane & segment | clamp & ~segment, lane & segment
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": bottom | by & ~segment}[mode]
    inside = source >= top if mode == "up" else source <= top
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@given(by=st.integers(0, 31), width=st.sampled_from([32, 16, 8, 4, 2]))
@few
def test_a_shuffle_reads_the_lane_that_ptx_defines(mode: str, by: int, width: int) -> None:
    control = (32 - width) << 8 | (0 if mode == "up" else 31)
    x, result, inside = np.arange(COUNT) * 3, np.zeros(COUNT, np.int64), np.zeros(COUNT, np.int64)
    body = f"""
        ld.global.b64 %rd1, [%a0]; cvt.u32.u64 %r1, %rd1;
        shfl.sync.{mode}.b32 %r2|%p1, %r1, {by}, {control}, -1;
        cvt.u64.u32 %rd2, %r2; st.global.b64 [%a1], %rd2; selp.b64 %rd3, 1, 0, %p1; st.global.b64 [%a2], %rd3;
    """
    launch(kernel(body, 3), 1, COUNT, [x], [result, inside])
    for t in range(COUNT):
        source, is_inside = shuffled(mode, t % 32, by, control)
        assert (result[t], inside[t]) == (x[t // 32 * 32 + source], is_inside)


def test_a_shuffle_of_some_lanes_needs_only_these() -> None:
    body = """
        setp.ge.u32 %p1, %t3, 8; @%p1 bra $END;
        shfl.sync.down.b32 %r1, %t3, 1, 31, 255; cvt.u64.u32 %rd1, %r1; st.global.b64 [%a0], %rd1;
        $END:
    """
    with pytest.raises(Exception, match="reads from a lane that does not take part, thread \\(7, 0, 0\\)"):
        launch(kernel(body, 1), 1, 32, [], [np.zeros(32)])
    result = np.zeros(32, np.int64)
    launch(kernel(body.replace("1, 31, 255", "1, 7, 255"), 1), 1, 32, [], [result])
    np.testing.assert_array_equal(result[:8], [1, 2, 3, 4, 5, 6, 7, 7])


def test_votes_of_a_warp() -> None:
    chosen = np.random.default_rng(0).integers(0, 2, COUNT).astype(bool)
    chosen[32:] = True
    warps = chosen.reshape(-1, 32)
    each = lambda values: np.repeat(values, 32)
    ballot = [sum(int(v) << i for i, v in enumerate(warp)) for warp in warps]
    np.testing.assert_array_equal(compute("vote.sync.ballot.b32", np.uint32, chosen, immediates=", -1"), each(ballot))
    votes = {"any": warps.any(axis=1), "all": warps.all(axis=1), "uni": warps.all(axis=1) | ~warps.any(axis=1)}
    for name, expected in votes.items():
        result = compute(f"vote.sync.{name}.pred", bool, chosen, immediates=", -1")
        np.testing.assert_array_equal(result, each(expected))


def test_lanes_with_equal_values_find_each_other() -> None:
    x = np.random.default_rng(1).integers(0, 5, COUNT).astype(np.uint32)
    x[32:] = 7
    equal = [sum(1 << i for i in range(32) if x[t // 32 * 32 + i] == x[t]) for t in range(COUNT)]
    np.testing.assert_array_equal(compute("match.any.sync.b32", np.uint32, x, immediates=", -1"), equal)
    result = compute("match.all.sync.b32", np.uint32, x, immediates=", -1")
    np.testing.assert_array_equal(result, np.repeat([0, 0xFFFFFFFF], 32))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add.u32", np.add),
        ("min.s32", np.minimum),
        ("max.s32", np.maximum),
        ("and.b32", np.bitwise_and),
        ("or.b32", np.bitwise_or),
        ("xor.b32", np.bitwise_xor),
    ],
)
def test_a_warp_reduces_integers(name: str, function: Any) -> None:
    x = np.random.default_rng(2).integers(-(2**31), 2**31, COUNT).astype(np.int32)
    expected = np.repeat(function.reduce(x.reshape(-1, 32), axis=1, dtype=np.int32), 32)
    np.testing.assert_array_equal(compute(f"redux.sync.{name}", np.int32, x, immediates=", -1"), expected)


def test_active_lanes_are_the_ones_of_the_branch() -> None:
    body = """
        setp.ge.u32 %p1, %t3, 5; mov.u32 %r1, 0; @%p1 bra $END; activemask.b32 %r1; elect.sync %r2|%p2, %r1;
        @%p2 add.u32 %r1, %r1, 100; $END: cvt.u64.u32 %rd1, %r1; st.global.b64 [%a0], %rd1;
    """
    result = np.zeros(32, np.int64)
    launch(kernel(body, 1), 1, 32, [], [result])
    np.testing.assert_array_equal(result[:6], [131, 31, 31, 31, 31, 0])


def sequential(function: Callable[[Any, Any], Any], start: Any, values: Any) -> tuple[Any, list[Any]]:
    """Updates one element by values, one after the other: the last value, and the old ones."""
    old = []
    for value in values:
        old.append(start)
        start = np.asarray(function(start, value)).astype(values.dtype)
    return start, old


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [
        ("add.u32", np.uint32, lambda a, b: a + b),
        ("add.f32", np.float32, lambda a, b: a + b),
        ("add.f64", np.float64, lambda a, b: a + b),
        ("min.s32", np.int32, min),
        ("max.u64", np.uint64, max),
        ("and.b32", np.uint32, lambda a, b: a & b),
        ("or.b32", np.uint32, lambda a, b: a | b),
        ("xor.b32", np.uint32, lambda a, b: a ^ b),
        ("exch.b32", np.uint32, lambda a, b: b),
        ("inc.u32", np.uint32, lambda a, b: 0 if a >= b else a + 1),
        ("dec.u32", np.uint32, lambda a, b: b if a == 0 or a > b else a - 1),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared", ""])
def test_atomic_updates_happen_one_after_the_other(
    name: str, dtype: Any, function: Callable[..., Any], space: str
) -> None:
    dtype, generator = np.dtype(dtype), np.random.default_rng(3)
    bits, register = 8 * dtype.itemsize, "%rd" if dtype.itemsize == 8 else "%r"
    x = np.zeros((COUNT, 8 // dtype.itemsize), dtype)
    x[:, 0] = generator.integers(0, 50, COUNT)
    cells, old = np.zeros((4, 8 // dtype.itemsize), dtype), np.zeros_like(x)
    place = {"global": "%rd5", "shared": "%rd6", "": "%rd7"}[space]
    way = ".relaxed.gpu" * (space == "global") + f".{space}" * bool(space)
    body = f"""
        ld.global.b{bits} {register}1, [%a0]; and.b32 %r8, %t3, 3; mul.wide.u32 %rd4, %r8, 8;
        add.s64 %rd5, %rd4, %b1; mov.u64 %rd6, cells; add.s64 %rd6, %rd6, %rd4; cvta.shared.u64 %rd7, %rd6;
        setp.lt.u32 %p1, %t3, 4; mov.b{bits} {register}3, 0;
        @%p1 st.global.b64 [%rd5], 0; @%p1 st.shared.b64 [%rd6], 0; bar.sync 0;
        atom{way}.{name} {register}2, [{place}], {register}1; st.global.b{bits} [%a2], {register}2; bar.sync 0;
        @%p1 ld.b{bits} {register}3, [{place if not space else "%rd5" if space == "global" else "%rd7"}];
        @%p1 st.global.b{bits} [%a3], {register}3;
    """
    entry = kernel(body, 4, ".shared .align 8 .b8 cells[32];")
    result = np.zeros((COUNT, 8 // dtype.itemsize), dtype)
    launch(entry, 1, COUNT, [x], [cells, old, result])
    for k in range(4):
        last, before = sequential(function, dtype.type(0), x[k::4, 0])
        assert result[k, 0] == last
        np.testing.assert_array_equal(old[k::4, 0], before)


def test_compare_and_swap_gives_the_old_value() -> None:
    body = """
        mov.u64 %rd1, lock; setp.eq.u32 %p1, %t3, 0; @%p1 st.shared.b32 [%rd1], 0; bar.sync 0;
        add.u32 %r1, %t3, 1; atom.shared.cas.b32 %r2, [%rd1], 0, %r1; cvt.u64.u32 %rd2, %r2; st.global.b64 [%a0], %rd2;
    """
    result = np.zeros(COUNT, np.int64)
    launch(kernel(body, 1, ".shared .align 4 .b8 lock[4];"), 1, COUNT, [], [result])
    np.testing.assert_array_equal(result, [0] + [1] * (COUNT - 1))


def test_reductions_of_many_blocks_meet_in_one_element() -> None:
    x, total = np.arange(640), np.zeros(1, np.int64)
    regions = regions_of([x], [total])
    assert regions[1].is_filled is not None
    regions[1].is_filled[...] = True
    entry = kernel("ld.global.b64 %rd1, [%a0]; red.global.add.u64 [%b1], %rd1;", 2)
    entry.run((10, 1, 1), (64, 1, 1), 0, [region.address for region in regions], regions)
    assert total[0] == x.sum()


def test_grids_and_blocks_have_three_dimensions() -> None:
    body = """
        mov.u32 %r1, %tid.z; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
        mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %t3;
        mov.u32 %r4, %ctaid.z; mov.u32 %r5, %nctaid.y; mov.u32 %r6, %ctaid.y; mad.lo.u32 %r4, %r4, %r5, %r6;
        mov.u32 %r5, %nctaid.x; mad.lo.u32 %r4, %r4, %r5, %t1; mad.lo.u32 %r7, %r4, 30, %r1;
        mul.wide.u32 %rd1, %r7, 8; add.s64 %rd1, %rd1, %b0; cvt.u64.u32 %rd2, %r7; st.global.b64 [%rd1], %rd2;
    """
    result = np.zeros(24 * 30, np.int64)
    launch(kernel(body, 1), (2, 3, 4), (5, 3, 2), [], [result])
    np.testing.assert_array_equal(result, np.arange(24 * 30))


def test_a_grid_of_several_waves_gives_the_same_values() -> None:
    x, y = np.arange(300 * 512), np.zeros(300 * 512, np.int64)
    body = "ld.global.b64 %rd1, [%a0]; add.s64 %rd1, %rd1, 5; st.global.b64 [%a1], %rd1;"
    counts = launch(kernel(body, 2), 300, 512, [x], [y])
    np.testing.assert_array_equal(y, x + 5)
    assert (counts.loaded, counts.stored, counts.waste) == (x.nbytes, y.nbytes, 1.0)


def test_races_between_waves_are_found() -> None:
    body = "cvt.u64.u32 %rd1, %t3; shl.b64 %rd1, %rd1, 3; add.s64 %rd1, %rd1, %b0; st.global.b64 [%rd1], %rd1;"
    with pytest.raises(Exception, match="another thread wr"):
        launch(kernel(body, 1), 300, 512, [], [np.zeros(512)])


def test_strided_loads_touch_a_sector_each() -> None:
    body = "shl.b32 %r1, %t0, 5; cvt.u64.u32 %rd1, %r1; add.s64 %rd1, %rd1, %b0; ld.global.b32 %r2, [%rd1];"
    counts = launch(kernel(body, 1), 1, COUNT, [np.zeros(COUNT * 8, np.float32)], [])
    assert (counts.sectors, counts.waste) == (COUNT, 8.0)
    same = launch(kernel("ld.global.b32 %r2, [%b0];", 1), 1, COUNT, [np.zeros(8)], [])
    assert same.sectors == 2


@pytest.mark.parametrize(("step", "conflicts"), [(1, 0), (2, 1), (32, 31), (33, 0), (0, 0)])
def test_words_of_one_bank_conflict(step: int, conflicts: int) -> None:
    body = f"mul.lo.u32 %r1, %t3, {4 * step}; mov.u32 %r2, words; add.u32 %r1, %r1, %r2; "
    own = (
        "st.shared.b32 [%r1], %t3;" if step else "@%p1 st.shared.b32 [%r1], %t3; bar.sync 0; ld.shared.b32 %r3, [%r1];"
    )
    entry = kernel("setp.eq.u32 %p1, %t3, 0; " + body + own, 0, ".shared .align 4 .b8 words[8192];")
    assert launch(entry, 1, 32, [], []).conflicts == conflicts


MODULE = """
.version 7.8
.target sm_90
.address_size 64
.const .align 4 .b32 table[4] = {1, -2, 0x7, 0f3F800000};
.global .align 8 .u64 wide[2] = {5, 6};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .align 8 .b8 result[16]) pair(.param .b64 x, .param .b32 y)
{
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.b64 %rd1, [x]; ld.param.b32 %r1, [y]; cvt.u64.u32 %rd2, %r1; add.s64 %rd3, %rd1, %rd2;
    st.param.v2.b64 [result], {%rd1, %rd3}; ret;
}
.visible .entry k(.param .u64 out, .param .u32 number, .param .f32 real, .param .s16 small)
{
    .local .align 16 .b8 __local_depot1[32];
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<30>, %SP, %SPL; .reg .b16 %rs<4>;
    mov.u64 %SPL, __local_depot1; cvta.local.u64 %SP, %SPL; /* a comment
    of two lines */
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 64; add.s64 %rd1, %rd1, %rd2;
    and.b32 %r2, %r1, 3; mul.wide.u32 %rd3, %r2, 4; mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3;
    ld.const.s32 %rd5, [%rd4]; st.global.u64 [%rd1], %rd5;
    ld.global.u64 %rd6, [wide+8]; st.global.u64 [%rd1+8], %rd6;
    ld.param.u32 %r3, [number]; ld.param.f32 %r4, [real]; ld.param.s16 %r5, [small]; st.global.v2.b32 [%rd1+16], {%r3, %r4};
    cvt.s64.s32 %rd7, %r5; st.u64 [%rd1+24], %rd7;
    st.local.v2.b32 [%SPL+8], {%r1, %r3}; ld.b64 %rd8, [%SP+8]; st.global.b64 [%rd1+32], %rd8;
    mul.wide.u32 %rd9, %r1, 4; mov.u64 %rd10, dynamic; add.s64 %rd10, %rd10, %rd9; st.shared.b8 [%rd10+3], %r1;
    ld.shared.u8 %rd11, [%rd10+3]; st.global.b64 [%rd1+40], %rd11;
    { .param .b64 param0; .param .b32 param1; .param .align 8 .b8 retval0[16];
    st.param.b64 [param0], %rd11; st.param.b32 [param1], %r3; call.uni (retval0), pair, (param0, param1);
    ld.param.v2.b64 {%rd12, %rd13}, [retval0]; }
    st.global.v2.b64 [%rd1+48], {%rd12, %rd13};
    ret;
}
"""


def test_every_space_of_memory_holds_its_values() -> None:
    module = PtxModule(MODULE)
    entry = module.entries["k"]
    assert [kind.name for kind in entry.parameters] == ["u64", "u32", "f32", "s16"]
    result = np.zeros((8, 8), np.int64)
    regions = regions_of([], [result])
    entry.run((1, 1, 1), (8, 1, 1), 64, [regions[0].address, 9, 0.5, -3], regions)
    table, half = [1, -2, 7, 0x3F800000], int(np.float32(0.5).view(np.uint32))
    for t in range(8):
        assert result[t].tolist() == [table[t % 4], 6, half << 32 | 9, -3, 9 << 32 | t, t, t, t + 9]


def test_local_and_shared_memory_that_is_not_written_is_not_read() -> None:
    for body, message in (
        ("ld.local.b32 %r1, [stack];", "byte 0 of stack in local memory, which nobody wrote"),
        ("st.local.b32 [stack+8], %t3;", "writes 4 bytes at 8 of 8 bytes of local memory"),
    ):
        with pytest.raises(Exception, match=message):
            launch(kernel(body, 0, ".local .align 8 .b8 stack[8];"), 1, 32, [], [])


def passes(addresses: list[int], width: int) -> int:
    """Counts passes over the banks bank by bank: the most words of one bank, for each group of lanes that goes together."""
    together, total = 128 // max(width, 4), 0
    for first in range(0, 32, together):
        banks: dict[int, set[int]] = {}
        for address in addresses[first : first + together]:
            for word in range(address // 4, -(-(address + width) // 4)):
                banks.setdefault(word % 32, set()).add(word)
        total += max(len(words) for words in banks.values())
    return total - 32 // together


@given(data=st.data(), width=st.sampled_from([1, 2, 4, 8, 16]))
@settings(max_examples=60, deadline=None)
def test_conflicts_of_banks_are_counted_as_bank_by_bank(data: st.DataObject, width: int) -> None:
    limit = data.draw(st.sampled_from([2, 8, 40, 400]))
    addresses = [width * k for k in data.draw(st.lists(st.integers(0, limit), min_size=32, max_size=32))]
    found = count_conflicts(np.array(addresses, np.uint64), np.arange(32), width)
    assert found == passes(addresses, width)
