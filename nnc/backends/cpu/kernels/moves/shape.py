"""Native kernels of the commands that move elements without computing: copies of views, joins and padding."""

from __future__ import annotations

from dataclasses import replace

from nnc.backends.moves import fill_box, is_tiny, move_box
from nnc.backends.printer import Printer, add_native
from nnc.base.later import later
from nnc.device import CPU
from nnc.device.target import Target
from nnc.graph import Command, TensorSpec, kernel
from nnc.lower.kernels.axes import Shape
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View, is_contiguous, row_major
from nnc.lower.plan.views import restride

join_many = later(f"{__package__}.joins", "join_many")

_PRINTED = 32  # operands of a join that are copied one after the other: LLVM's time for those grows with their square


def _copy(step: Step, machine: Target) -> Native | None:
    """Moves of programs: an input to an output of its shape."""
    if len(step.inputs) != 1:
        return None
    (x,), (out,) = step.inputs, step.outputs
    return _moved(step, machine, x.strides, out)


def _moved(step: Step, machine: Target, strides: Shape, out: View, offset: int = 0) -> Native:
    printer = Printer(step, machine)
    source = printer.share("source", printer.main.offset("%in0", offset)) if offset else "%in0"
    move_box(printer, out.spec, source, strides, "%out0", out.strides)
    return printer.native(inline=is_tiny(machine, out.spec))


def _view(step: Step, machine: Target) -> Native | None:
    """View commands, where they must run: the input as the view would show it is copied."""
    (x,), (out,) = step.inputs, step.outputs
    if not out.spec.size:
        return _moved(step, machine, out.strides, out)
    shown = restride[step.command](x.spec, out.spec, x.strides, **step.params)
    if shown is None:
        return None
    offset, strides = shown
    return _moved(step, machine, strides, out, offset)


def _reshape(step: Step, machine: Target) -> Native | None:
    """Returns a view, or a copy in the order of the elements, which a result without gaps allows."""
    (x,), (out,) = step.inputs, step.outputs
    native = _view(step, machine)
    if native is not None or not is_contiguous(out.spec, out.strides):
        return native
    return _moved(step, machine, x.strides, replace(out, spec=x.spec, strides=row_major(x.spec)))


def _reorder(step: Step, machine: Target) -> Native | None:
    (x,), (out,) = step.inputs, step.outputs
    return _moved(step, machine, tuple(x.strides[axis] for axis in step.params["permutation"]), out)


def _concatenate(step: Step, machine: Target) -> Native | None:
    out = step.outputs[0]
    axis = step.params["axis"] % out.spec.ndim
    if len(step.inputs) > _PRINTED and out.spec.size:
        joined: Native = join_many(step, machine)
        return joined
    printer = Printer(step, machine)
    at = 0
    for k, part in enumerate(step.inputs):
        target = printer.share(f"target{k}", printer.main.offset("%out0", at * out.strides[axis]))
        move_box(printer, part.spec, f"%in{k}", part.strides, target, out.strides)
        at += part.spec.shape[axis]
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
        pointer = printer.main.offset("%out0", _offset(tuple(start), out.strides))
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
    strides = tuple((gap + 1) * stride for gap, stride in zip(interior, out.strides, strict=True))
    inner = printer.share("inner", printer.main.offset("%out0", _offset(low, out.strides)))
    move_box(printer, x.spec, "%in0", x.strides, inner, strides)
    return printer.native(inline=is_tiny(machine, out.spec))


def _offset(start: Shape, strides: Shape) -> int:
    return sum(a * stride for a, stride in zip(start, strides, strict=True))


def _add_view(target: Command) -> None:
    """Adds the kernel of views to one that has none of its own."""
    if not any(each.backend == CPU for each in kernel.so_far(target)):
        add_native(target.name, _view)


add_native("reshape", _reshape)
restride.follow(_add_view)
add_native("copy", _copy)
add_native("reorder", _reorder)
add_native("concatenate", _concatenate)
add_native("pad", _pad)
