"""Compiled kernels of a few commands, for tests of compiled programs: elementwise ones, on any strides, in scalar loops."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from nnc.backends.choose import choose_kernel
from nnc.backends.cpu.compiler.jit import Jit, compiler
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower
from nnc.graph import Command, Graph, Kernel, TensorSpec
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step
from nnc.run.program import Program

_TANH = ctypes.cast(ctypes.CDLL(ctypes.util.find_library("m")).tanh, ctypes.c_void_p).value or 0


def _minimum(code: Code, x: Value, y: Value) -> Value:
    return code.select(code.compare("lt", x, y), x, y)


def _maximum(code: Code, x: Value, y: Value) -> Value:
    return code.select(code.compare("lt", x, y), y, x)


def _tanh(code: Code, x: Value) -> Value:
    code.declare("declare double @test_tanh(double)")
    wide = code.convert(x, dtypes.float64)
    return code.convert(Value(code.let(f"call double @test_tanh({wide.typed})"), dtypes.float64), x.dtype)


ELEMENTWISE: dict[str, Callable[..., Value]] = {
    "neg": Code.neg, "add": Code.add, "sub": Code.sub, "mul": Code.mul, "minimum": _minimum, "maximum": _maximum, "tanh": _tanh,
    "less": lambda code, x, y: code.compare("lt", x, y), "greater": lambda code, x, y: code.compare("gt", x, y),
    "square": lambda code, x: code.mul(x, x), "copy": lambda code, x: x,
}  # fmt: skip


def elementwise(step: Step, inline: bool = True) -> Native | None:
    """The kernel of an elementwise step with one result."""
    views = (*step.inputs, *step.outputs)
    if len(step.outputs) != 1 or not all(has_code(view.spec.dtype) for view in views):
        return None
    names = [f"x{i}" for i in range(len(views))]
    code = Code("KERNEL", [("ptr", name) for name in names])
    pointers = [f"%{name}" for name in names]
    with ExitStack() as loops:
        for axis, n in enumerate(step.outputs[0].spec.shape):
            i = loops.enter_context(code.loop(0, n))
            pointers = [
                code.offset(pointer, code.mul(i, code.integer(view.strides[axis])))
                for pointer, view in zip(pointers, views, strict=True)
            ]
        operands = [code.load(p, view.spec.dtype) for p, view in zip(pointers, step.inputs, strict=False)]
        code.store(pointers[-1], ELEMENTWISE[step.command.name](code, *operands))
    code.ret(code.integer(0))
    symbols = {"test_tanh": _TANH} if step.command.name == "tanh" else {}
    return Native("\n".join([*sorted(code.declarations), code.text()]), symbols, inline=inline)


def jit() -> Jit:
    found = compiler()
    assert found is not None
    return found


def chooser(
    natives: Mapping[str, Callable[[Step], Native | None]],
) -> Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any], Target], Kernel]:
    """Chooses NumPy's kernels, compiled ones beside them for some commands."""

    def choose(command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> Kernel:
        kernel = replace(choose_kernel(command, specs, params, machine), native=None)
        native = natives.get(command.name)
        return kernel if native is None else replace(kernel, backend="test", native=native)

    return choose


def lower_twice(graph: Graph, names: Collection[str] = tuple(ELEMENTWISE), **changes: Any) -> tuple[Program, Program]:
    """A graph's program as machine code, with compiled kernels of the commands `names`, and the one that runs from Python."""
    choose = chooser(dict.fromkeys(names, elementwise))
    options = Options(verify_passes=True, **changes)
    return lower(graph, options, choose, jit()), lower(graph, options, choose)
