"""A warp multiplies small matrices; the parts of its lanes lie where the PTX manual says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.errors import DeviceError
from tests.unit.testing.devices.ptx.launching import kernel, launch

LANES = range(32)
# The manual's places of the numbers that a lane holds, in order: row and column for the left, the right and the last matrix.
HALVES = {
    16: (
        [(lambda g, t, i=i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4))) for i in range(8)],
        [(lambda g, t, i=i: (2 * t + i % 2 + 8 * (i // 2), g)) for i in range(4)],
    ),
    8: (
        [(lambda g, t, i=i: (g + 8 * (i // 2), 2 * t + i % 2)) for i in range(4)],
        [(lambda g, t, i=i: (2 * t + i, g)) for i in range(2)],
    ),
}
SINGLES = (
    [(lambda g, t, i=i: (g + 8 * (i % 2), t + 4 * (i // 2))) for i in range(4)],
    [(lambda g, t, i=i: (t + 4 * i, g)) for i in range(2)],
)
SUMS = [(lambda g, t, i=i: (g + 8 * (i // 2), 2 * t + i % 2)) for i in range(4)]


def fragments(matrix: Any, places: Any, width: int) -> Any:
    """The parts of a matrix by lane, in rows of 8 bytes times `width`."""
    parts = np.array([[matrix[place(lane >> 2, lane & 3)] for place in places] for lane in LANES], matrix.dtype)
    rows = np.zeros((32, width), np.uint64).view(matrix.dtype)
    rows[:, : parts.shape[1]] = parts
    return rows


def multiply(opcode: str, x: Any, y: Any, z: Any, places: Any) -> Any:
    """Runs `mma` on one warp."""
    registers = [len(places[0]) * x.dtype.itemsize // 4, len(places[1]) * y.dtype.itemsize // 4]
    names = [[f"%r{10 * (i + 1) + k}" for k in range(count)] for i, count in enumerate((*registers, 4))]
    lines = ["mul.wide.u32 %rd1, %t3, 16;"]
    for i, each in enumerate(names):
        lines.append(f"add.s64 %rd2, %rd1, %b{i};")
        lines += [f"ld.global.b32 {name}, [%rd2+{4 * k}];" for k, name in enumerate(each)]
    vectors = ", ".join("{" + ", ".join(each) + "}" for each in names)
    lines.append(f"mma.sync.aligned.{opcode} {{%r1, %r2, %r3, %r4}}, {vectors};")
    lines.append("add.s64 %rd2, %rd1, %b3; st.global.v4.b32 [%rd2], {%r1, %r2, %r3, %r4};")
    inputs = [fragments(x, places[0], 2), fragments(y, places[1], 2), fragments(z, SUMS, 2)]
    output = np.zeros((32, 4), np.float32)
    launch(kernel("\n".join(lines), 4), 1, 32, inputs, [output])
    result = np.zeros((16, 8), np.float32)
    for lane in LANES:
        for i, place in enumerate(SUMS):
            result[place(lane >> 2, lane & 3)] = output[lane, i]
    return result


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_multiplied_and_added_in_float32(kind: str, depth: int) -> None:
    generator = np.random.default_rng(depth)
    x, y = (generator.integers(-8, 9, shape).astype(np.float32) / 4 for shape in ((16, depth), (depth, 8)))
    z = generator.normal(size=(16, 8)).astype(np.float32)
    narrow = lambda v: (v.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else v.astype(np.float16)
    result = multiply(f"m16n8k{depth}.row.col.f32.{kind}.{kind}.f32", narrow(x), narrow(y), z, HALVES[depth])
    np.testing.assert_array_equal(result, (x.astype(float) @ y + z).astype(np.float32))


def test_float32_is_cut_to_the_bits_of_tf32() -> None:
    generator = np.random.default_rng(1)
    x, y, z = (generator.normal(size=shape).astype(np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    result = multiply("m16n8k8.row.col.f32.tf32.tf32.f32", x, y, z, SINGLES)
    short = [(v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float) for v in (x, y)]
    np.testing.assert_array_equal(result, (short[0] @ short[1] + z).astype(np.float32))


def test_all_lanes_of_a_warp_multiply() -> None:
    body = "setp.lt.u32 %p1, %t3, 9; @%p1 bra $END; mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
    body += "{%r1, %r2, %r3, %r4}, {%t3, %t3}, {%t3}, {%t3, %t3, %t3, %t3}; $END:"
    with pytest.raises(DeviceError, match="runs without all lanes of a warp"):
        launch(kernel(body, 0), 1, 32, [], [])


def test_other_types_are_not_known() -> None:
    body = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r1, %r1};"
    with pytest.raises(DeviceError, match="its types"):
        kernel(body, 0).check()
