"""Runs kernels of the tests: single instructions on arrays, and texts that LLVM compiles."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np

from nnc.testing.devices.ptx import Counts, Entry, PtxModule, Region

BASE = 0x7000_0000_0000
STRIDE = 1 << 24  # bytes between the arrays of a launch


def compile_llvm(text: str, cpu: str = "sm_90") -> PtxModule:
    """Compiles LLVM's text for a GPU."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.triple = "nvptx64-nvidia-cuda"
    machine = llvm.Target.from_triple(module.triple).create_target_machine(cpu=cpu, opt=2)
    module.data_layout = str(machine.target_data)
    return PtxModule(machine.emit_assembly(module))


def regions_of(inputs: list[Any], outputs: list[Any]) -> list[Region]:
    """Places arrays in the memory of the device; outputs are not filled."""
    arrays = [*((x, True) for x in inputs), *((y, False) for y in outputs)]
    return [
        Region(
            f"{'x' if is_input else 'y'}{i}", BASE + i * STRIDE, array.reshape(-1).view(np.uint8),
            None if is_input else np.zeros(array.nbytes, bool), writable=not is_input,
        )
        for i, (array, is_input) in enumerate(arrays)
    ]  # fmt: skip


def launch(
    entry: Entry, grid: Any, block: Any, inputs: list[Any], outputs: list[Any], *numbers: Any, shared: int = 0
) -> Counts:
    """Runs a kernel whose parameters are the inputs, the outputs and numbers."""
    regions = regions_of(inputs, outputs)
    sizes = [extent if isinstance(extent, tuple) else (extent, 1, 1) for extent in (grid, block)]
    return entry.run(*sizes, shared, [*(region.address for region in regions), *numbers], regions)


def kernel(body: str, pointers: int, extra: str = "") -> Entry:
    """Makes a kernel of statements; `%a0`, `%a1`, ... point to the element of the thread in each array of 8 bytes an element."""
    parameters = ", ".join(f".param .u64 k_param_{i}" for i in range(pointers))
    loads = "".join(f"ld.param.u64 %b{i}, [k_param_{i}]; mad.wide.u32 %a{i}, %t0, 8, %b{i};\n" for i in range(pointers))
    text = f"""
        .version 7.8
        .target sm_90
        .address_size 64
        .visible .entry k({parameters}) {{
            .reg .pred %p<10>; .reg .b16 %rs<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .b32 %t<8>; .reg .b64 %a<9>, %b<9>;
            .reg .b8 %c<4>;
            {extra}
            mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mov.u32 %t3, %tid.x;
            mad.lo.s32 %t0, %t1, %t2, %t3;
            {loads}
            {body}
            ret;
        }}"""
    return PtxModule(text).entries["k"]


_REGISTER = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}


def compute(opcode: str, result: Any, *operands: Any, immediates: str = "") -> Any:
    """Runs one instruction on arrays, one element a thread.

    Args:
        opcode: with its modifiers.
        result: dtype of the result; bool for a predicate.
        operands: arrays of equal length; booleans become predicates.
        immediates: operands behind them, as text.
    """
    count = len(operands[0])
    result = np.dtype(result)
    is_predicate = result.kind == "b"
    lines, names = [], []
    for i, x in enumerate(operands):
        bits, name = 8 * x.dtype.itemsize, f"{_REGISTER[x.dtype.itemsize]}{i + 1}"
        lines.append(f"ld.global.b{bits} {name}, [%a{i}];")
        if x.dtype.kind == "b":
            lines.append(f"setp.ne.b16 %p{i + 1}, {name}, 0;")
            name = f"%p{i + 1}"
        names.append(name)
    target = "%p9" if is_predicate else f"{_REGISTER[result.itemsize]}9"
    lines.append(f"{opcode} {', '.join([target, *names])}{immediates};")
    if is_predicate:
        lines.append("selp.b16 %rs9, 1, 0, %p9;")
        target = "%rs9"
    lines.append(f"st.global.b{8 * result.itemsize} [%a{len(operands)}], {target};")
    spread = []
    for x in operands:
        wide = np.zeros((count, 8 // x.dtype.itemsize), x.dtype)
        wide[:, 0] = x
        spread.append(wide)
    output = np.zeros((count, 8 // result.itemsize), result)
    launch(kernel("\n".join(lines), len(operands) + 1), 1, count, spread, [output])
    return output[:, 0].copy()
