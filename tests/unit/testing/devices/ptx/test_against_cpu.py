"""A function that LLVM compiles for a GPU and for the host gives equal values: LLVM's own choice of instructions is run."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.unit.testing.devices.ptx.exact import FORMATS
from tests.unit.testing.devices.ptx.launching import compile_llvm, launch
from tests.unit.testing.devices.ptx.test_integers import random

COUNT = 160
DTYPES: dict[str, Any] = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "float": np.float32, "double": np.float64,
}  # fmt: skip
SUFFIX = {"float": "f32", "double": "f64"}

GPU = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
{declarations}
define ptx_kernel void @k(ptr %p, ptr %q, ptr %o) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %px = getelementptr {kind}, ptr %p, i32 %i
  %py = getelementptr {kind}, ptr %q, i32 %i
  %po = getelementptr {result}, ptr %o, i32 %i
  %x = load {kind}, ptr %px
  %y = load {kind}, ptr %py
  {body}
  store {result} %r, ptr %po
  ret void
}}
"""
CPU = """
{declarations}
define void @k(ptr %p, ptr %q, ptr %o, i32 %n) {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %loop]
  %px = getelementptr {kind}, ptr %p, i32 %i
  %py = getelementptr {kind}, ptr %q, i32 %i
  %po = getelementptr {result}, ptr %o, i32 %i
  %x = load {kind}, ptr %px
  %y = load {kind}, ptr %py
  {body}
  store {result} %r, ptr %po
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def on_cpu(text: str, arrays: list[Any]) -> None:
    """Compiles and runs a text on the host."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int32)(engine.get_function_address("k"))
    function(*(array.ctypes.data for array in arrays), COUNT)


def check(kind: str, body: str, result: str | None = None, declarations: str = "", seed: int = 0) -> None:
    """Runs `body`, which computes %r of %x and %y, on both."""
    result, generator = result or kind, np.random.default_rng(seed)
    if kind in SUFFIX:
        x, y = (FORMATS[SUFFIX[kind]].random(generator, COUNT) for _ in range(2))
    else:
        x, y = (random(f"s{kind[1:]}", generator, COUNT) for _ in range(2))
    fields = {"kind": kind, "result": result, "body": body, "declarations": declarations}
    gpu, cpu = np.zeros(COUNT, DTYPES[result]), np.zeros(COUNT, DTYPES[result])
    launch(compile_llvm(GPU.format(**fields)).entries["k"], 1, COUNT, [x, y], [gpu])
    on_cpu(CPU.format(**fields), [x, y, cpu])
    np.testing.assert_array_equal(gpu, cpu)
    if result in SUFFIX:
        is_number = ~np.isnan(cpu)
        np.testing.assert_array_equal(np.signbit(gpu[is_number]), np.signbit(cpu[is_number]))


def call(name: str, kind: str, operands: int, result: str | None = None, extra: str = "") -> tuple[str, str]:
    """A call of an intrinsic function of LLVM, and its declaration."""
    result = result or kind
    suffix = SUFFIX.get(kind, kind)
    whole = f"{SUFFIX.get(result, result)}.{suffix}" if result != kind else suffix
    values = ", ".join(f"{kind} %{'xyx'[i]}" for i in range(operands))
    types = ", ".join([kind] * operands)
    flag, flags = (f", {extra}", f", {extra.split()[0]}") if extra else ("", "")
    function = f"@llvm.{name}.{whole}"
    return f"%r = call {result} {function}({values}{flag})", f"declare {result} {function}({types}{flags})"


INTEGERS = ("i8", "i16", "i32", "i64")
NUMBERS = ("float", "double")


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: str) -> None:
    bits = kind[1:]
    for name in ("add", "sub", "mul", "and", "or", "xor"):
        check(kind, f"%r = {name} {kind} %x, %y")
    for name in ("udiv", "sdiv", "urem", "srem"):
        check(kind, f"%a = and {kind} %y, 63\n%b = or {kind} %a, 1\n%r = {name} {kind} %x, %b")
    for name in ("shl", "lshr", "ashr"):
        check(kind, f"%a = and {kind} %y, {int(bits) - 1}\n%r = {name} {kind} %x, %a")
    for test in ("eq", "slt", "uge", "sle"):
        check(kind, f"%c = icmp {test} {kind} %x, %y\n%r = select i1 %c, {kind} %x, {kind} 5")


@pytest.mark.parametrize("kind", INTEGERS)
def test_functions_of_integers(kind: str) -> None:
    for name in ("smin", "smax", "umin", "umax", "uadd.sat", "sadd.sat", "usub.sat", "ssub.sat"):
        body, declaration = call(name, kind, 2)
        check(kind, body, declarations=declaration)
    for name in ("ctpop", "bitreverse", *(["bswap"] if kind != "i8" else [])):
        body, declaration = call(name, kind, 1)
        check(kind, body, declarations=declaration)
    for name in ("ctlz", "cttz", "abs"):
        body, declaration = call(name, kind, 1, extra="i1 false")
        check(kind, body, declarations=declaration)
    for name in ("fshl", "fshr"):
        body, declaration = call(name, kind, 3)
        check(kind, body, declarations=declaration)


@pytest.mark.parametrize("kind", INTEGERS)
def test_widths_of_integers(kind: str) -> None:
    for other in INTEGERS:
        if int(other[1:]) > int(kind[1:]):
            check(kind, f"%r = sext {kind} %x to {other}", other)
            check(kind, f"%r = zext {kind} %x to {other}", other)
            check(other, f"%r = trunc {other} %x to {kind}", kind)
    wide = f"i{2 * int(kind[1:])}"
    for extend in ("sext", "zext"):
        lines = [f"%a = {extend} {kind} %x to {wide}", f"%b = {extend} {kind} %y to {wide}"]
        lines += [f"%c = mul {wide} %a, %b", f"%d = lshr {wide} %c, {kind[1:]}", f"%r = trunc {wide} %d to {kind}"]
        check(kind, "\n".join(lines))


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers(kind: str) -> None:
    for name in ("fadd", "fsub", "fmul", "fdiv"):
        check(kind, f"%r = {name} {kind} %x, %y")
    check(kind, f"%r = fneg {kind} %x")
    for test in ("oeq", "one", "olt", "oge", "ord", "uno", "ueq", "une", "ult", "uge"):
        check(kind, f"%c = fcmp {test} {kind} %x, %y\n%r = select i1 %c, {kind} %x, {kind} %y")
    for name in ("fabs", "sqrt", "floor", "ceil", "trunc", "rint", "roundeven"):
        body, declaration = call(name, kind, 1)
        check(kind, body, declarations=declaration)
    for name in ("minimum", "maximum", "copysign"):
        body, declaration = call(name, kind, 2)
        check(kind, body, declarations=declaration)
    body, declaration = call("fma", kind, 3)
    check(kind, body, declarations=declaration)


@pytest.mark.parametrize("kind", NUMBERS)
def test_conversions(kind: str) -> None:
    for other in INTEGERS:
        check(other, f"%r = sitofp {other} %x to {kind}", kind)
        check(other, f"%r = uitofp {other} %x to {kind}", kind)
        for name in ("fptosi.sat", "fptoui.sat"):
            body, declaration = call(name, kind, 1, result=other)
            check(kind, body, other, declaration)
    if kind == "float":
        check("float", "%r = fpext float %x to double", "double")
        check("double", "%r = fptrunc double %x to float", "float")
