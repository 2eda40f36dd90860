"""The native kernel of `fit`, which refuses integers that another dtype does not hold."""

from __future__ import annotations

from nnc.backends.printer import Part, Printer, add_native, over
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.fit import bounds
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step


def _fit(step: Step, machine: Target) -> Native:
    (x,), out = step.inputs, step.outputs[0]
    printer = Printer(step, machine, refuses=True)
    axes = Axes(x.spec.shape, (x.strides, out.strides)).merged()
    lower, upper = bounds(x.spec.dtype, out.spec.dtype)

    def body(code: Code, part: Part) -> None:
        bad = code.slot(code.constant(False, dtypes.bool_))
        with over(code, axes, ("%in0", "%out0"), part) as (source, target):
            number = code.load(source, x.spec.dtype)
            outside = code.or_(
                code.compare("lt", number, code.like(number, lower)),
                code.compare("gt", number, code.like(number, upper)),
            )
            code.write(bad, code.or_(code.read(bad), outside))
            code.store(target, code.convert(number, out.spec.dtype))
        with code.when(code.read(bad)):
            printer.refuse(code)

    printer.along(axes, x.spec.nbytes + out.spec.nbytes, body)
    return printer.native(inline=x.spec.size <= 1)


add_native("fit", _fit)
