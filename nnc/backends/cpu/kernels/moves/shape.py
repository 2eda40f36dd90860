"""Native kernels of the commands that move elements without computing: copies of views, joins and padding."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.moves import fill_box, is_tiny, move_box
from nnc.backends.printer import Printer, add_native, fixed_step
from nnc.base.later import later
from nnc.base.target import Target
from nnc.commands.pack import Blocks
from nnc.device import CPU
from nnc.graph import Command, TensorSpec, kernel
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, row_major
from nnc.lower.plan.views import inner_part, joined, restride, shown

join_many = later(f"{__package__}.joins", "join_many")

_PRINTED = 32  # operands of a join that are copied one after the other: LLVM's time for those grows with their square


def _shown(step: Step, machine: Target, in_order: bool = False) -> Native | None:
    """Copies the operand as it is shown."""
    found = shown(step, in_order)
    if found is None:
        return None
    (source, target), printer = found, Printer(step, machine)
    offset = source.offset - step.inputs[0].offset
    pointer = printer.share("source", printer.main.offset("%in0", offset)) if offset else "%in0"
    move_box(printer, target.spec, pointer, source.strides, "%out0", target.strides)
    return printer.native(inline=is_tiny(machine, target.spec))


def _concatenate(step: Step, machine: Target) -> Native | None:
    out = step.outputs[0]
    if len(step.inputs) > _PRINTED and out.spec.size:
        many: Native = join_many(fixed_step(step), machine)
        return many
    printer = Printer(step, machine)
    for k, (part, target) in enumerate(joined(step)):
        pointer = printer.share(f"target{k}", printer.main.offset("%out0", target.offset - out.offset))
        move_box(printer, part.spec, f"%in{k}", part.strides, pointer, out.strides)
    return printer.native(inline=is_tiny(machine, out.spec))


def _pad(step: Step, machine: Target) -> Native | None:
    """Returns the slabs around the operand, axis by axis, then the operand; all of the result where elements come to stand
    apart.
    """
    x, out = step.inputs[0], step.outputs[0]
    low, interior = step.params["low"], step.params["interior"]
    printer = Printer(step, machine)
    shape, start = list(out.spec.shape), [0] * out.spec.ndim

    def fill(name: str) -> None:
        skipped = sum(a * stride for a, stride in zip(start, out.strides, strict=True))
        pointer = printer.main.offset("%out0", skipped)
        spec = TensorSpec(tuple(shape), out.spec.dtype)
        fill_box(printer, spec, "%in1", printer.share(name, pointer), out.strides)

    if any(interior) or not x.spec.size:
        fill("all")
    else:
        for axis, (before, n) in enumerate(zip(low, x.spec.shape, strict=True)):
            whole = shape[axis]
            shape[axis] = before
            fill(f"low{axis}")
            shape[axis], start[axis] = whole - before - n, before + n
            fill(f"high{axis}")
            shape[axis], start[axis] = n, before
    inner = inner_part(step)
    pointer = printer.share("inner", printer.main.offset("%out0", inner.offset - out.offset))
    move_box(printer, x.spec, "%in0", x.strides, pointer, inner.strides)
    return printer.native(inline=is_tiny(machine, out.spec))


def _pack(step: Step, machine: Target) -> Native:
    """Returns the copy into another order of axes, or of whole blocks of one."""
    x, out = step.inputs[0], step.outputs[0]
    blocks = Blocks.of(step.params["layout"])
    sizes, strides = list(x.spec.shape), list(x.strides)
    for axis, size in blocks.blocks:
        sizes.append(size)
        strides.append(strides[axis])
        sizes[axis] //= size
        strides[axis] *= size
    order = (*blocks.order, *range(x.spec.ndim, len(sizes)))
    spec = TensorSpec(tuple(sizes[axis] for axis in order), x.spec.dtype)
    printer = Printer(step, machine)
    move_box(printer, spec, "%in0", tuple(strides[axis] for axis in order), "%out0", row_major(spec))
    return printer.native(inline=is_tiny(machine, out.spec))


def _has_no_padding(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    blocks = Blocks.of(params["layout"])
    return len(blocks.blocks) < 2 and blocks.padded == specs[0].shape


def _add_view(target: Command) -> None:
    """Adds the kernel of views to one that has none of its own."""
    if not any(each.backend == CPU for each in kernel.so_far(target)):
        add_native(target.name, _shown)


add_native("reshape", partial(_shown, in_order=True))
add_native("copy", _shown, sized=True)
add_native("reorder", _shown)
add_native("pack", _pack, _has_no_padding)
restride.follow(_add_view)
add_native("concatenate", _concatenate, sized=True)
add_native("pad", _pad)
