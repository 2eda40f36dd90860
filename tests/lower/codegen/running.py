"""Runs printed code on arrays: for tests of single functions, without programs around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Value

Body = Callable[..., Value]


def elementwise_text(name: str, body: Body, inputs: Sequence[DType], output: DType, lanes: int) -> str:
    """A module of one function (pointers to inputs, pointer to the output, n / lanes), which runs `body(code, *values)` on all."""
    pointers = [f"in{i}" for i in range(len(inputs))]
    code = Code(name, [*(("ptr", pointer) for pointer in pointers), ("ptr", "out"), ("i64", "n")])
    width = max(lanes, 1)
    with code.loop(0, Value("%n", code.integer(0).dtype)) as i:
        values = []
        for pointer, dtype in zip(pointers, inputs, strict=True):
            at = code.offset(f"%{pointer}", code.mul(i, code.integer(width * dtype.itemsize)))
            values.append(code.load(at, dtype, lanes))
        out = body(code, *values)
        out = code.splat(out, lanes) if lanes else out
        assert out.dtype == output and out.lanes == lanes
        code.store(code.offset("%out", code.mul(i, code.integer(width * output.itemsize))), out)
    code.ret(code.integer(0))
    return "\n".join(sorted(code.declarations)) + "\n" + code.text()


class Machine:
    """Compiles texts for this computer and keeps them loaded."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple()
        self.target = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True, codemodel="jitdefault"
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target)

    def load(self, text: str, name: str, pointers: int) -> Callable[..., int]:
        """The function of that name, which takes pointers and a number."""
        module = llvm.parse_assembly(text)
        module.verify()
        builder = llvm.create_pass_builder(self.target, llvm.create_pipeline_tuning_options())
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)
        self.engine.add_module(module)
        self.engine.finalize_object()
        address = self.engine.get_function_address(name)
        return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * pointers, ctypes.c_int64)(address)


_NAMES = iter(range(10**9))


class Elementwise:
    """A body, compiled for these dtypes; call it with arrays."""

    def __init__(self, machine: Machine, body: Body, inputs: Sequence[DType], output: DType, lanes: int) -> None:
        self.name = f"test{next(_NAMES)}"
        self.text = elementwise_text(self.name, body, inputs, output, lanes).replace("@KERNEL", f"@{self.name}")
        self.function = machine.load(self.text, self.name, len(inputs) + 1)
        self.output, self.lanes = output, lanes

    def __call__(self, *arrays: Any) -> np.ndarray[Any, Any]:
        width = max(self.lanes, 1)
        size = max(x.size for x in arrays)
        padded = [np.ascontiguousarray(np.resize(x.ravel(), -(-size // width) * width)) for x in arrays]
        out = np.empty(padded[0].size, self.output)
        assert self.function(*(x.ctypes.data for x in padded), out.ctypes.data, out.size // width) == 0
        return out[:size].reshape(arrays[0].shape)
