"""The runtime of compiled code: loops in threads, and the C functions that code generation itself asks for.

Loops run in nnc's own threads (`pool.py`); where there are none for the system, in the caller's thread alone.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from nnc.backends.cpu.compiler.float_mode import EXPORTS as FLOAT_MODE
from nnc.backends.cpu.compiler.float_mode import float_mode_text
from nnc.backends.cpu.compiler.preparation import PREPARE, prepare_text
from nnc.backends.cpu.threads.pool import ALONE, POOL_EXPORTS, Pool, pool_text
from nnc.backends.cpu.threads.team import STANDINS, TEAM_CALLS, TEAM_TEXT, thread_key
from nnc.backends.cpu.threads.threads import Openmp
from nnc.backends.cpu.threads.waiting import WaitingText, waiting_of
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.machine import address_of
from nnc.base.target import Target
from nnc.device import machine_of_device
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.writer import scalar_type

_SERIAL_LOOPS = (
    """\
@nnc_num_threads = external global i32

define void @nnc_parallel_for(ptr %fn, ptr %args, i64 %n, i64 %grain) nounwind {
"""
    + ALONE
)

_TAKE_THREADS = """
declare void @omp_set_num_threads(i32)

define void @nnc_take_threads() nounwind {
  %allowed = load i32, ptr @nnc_num_threads
  call void @omp_set_num_threads(i32 %allowed)
  ret void
}
"""

_TAKE_NOTHING = """
define void @nnc_take_threads() nounwind {
  ret void
}
"""

NAMES = ("__truncsfhf2", "__extendhfsf2")  # of float16
# nnc_parallel_for(fn, args, n, grain): fn(args, begin, end) on parts of 0..n, of `grain` items at least; in threads where there is
# more than one part. nnc_take_threads(): libraries that use OpenMP by themselves take `nnc_num_threads` threads when this thread
# calls them. nnc_prepare: see there.
EXPORTS = ("nnc_parallel_for", "nnc_take_threads", PREPARE, *NAMES, *FLOAT_MODE)
_MEMORY = (
    "memcpy",
    "memmove",
    "memset",
    "bzero",
    "__chkstk",
)  # macOS sets to 0 by `bzero`; Windows grows stacks by the last
_MATHS = tuple(
    f"{name}{kind}"
    for name in (
        "fmod", "fma", "pow", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan",
        "floor", "ceil", "trunc", "rint", "round", "roundeven", "nearbyint", "ldexp", "frexp",
    )
    for kind in ("", "f")
)  # fmt: skip

_VARIABLES = {"_fltused": ctypes.c_int32(1)}  # Windows' code that computes with floats asks for it
FUNCTIONS = frozenset((*_MEMORY, *_MATHS, *_VARIABLES))
"""The names of other libraries' functions that compiled code may call, and of variables that it may ask for."""


@dataclass(frozen=True, eq=False)
class Runtime:
    """The text of the runtime and the addresses that it and all other texts may use.

    `threads` holds how many threads a loop may take, where compiled code reads it. Loops run in the threads of `pool`, else in the
    caller's alone.
    """

    openmp: Openmp
    threads: ctypes.c_int32
    pool: Pool | None = None
    machine: Target = field(default_factory=machine_of_device)

    @property
    def has_team(self) -> bool:
        """Whether the pool can stand in for OpenMP, as it does for oneDNN on Linux."""
        return sys.platform == "linux" and self.pool is not None and self.openmp.library is not None

    @cached_property
    def waiting(self) -> WaitingText:
        """The text by which threads sleep."""
        return waiting_of()

    @cached_property
    def text(self) -> str:
        """The functions that the runtime adds, as LLVM's text."""
        prepare, team = prepare_text(self.machine.memory.page_bytes), TEAM_TEXT if self.has_team else ""
        loops = _SERIAL_LOOPS + float_mode_text()
        if self.pool is not None:
            loops = pool_text(self.machine.threads, more=team, waiting=self.waiting)
        take = _TAKE_THREADS if self.openmp.library is not None else _TAKE_NOTHING
        return loops + take + prepare + conversions_text()

    @property
    def exports(self) -> tuple[str, ...]:
        """The functions that are called from outside."""
        return (
            *EXPORTS,
            *(POOL_EXPORTS if self.pool is not None else ()),
            *(STANDINS.values() if self.has_team else ()),
        )

    def symbols(self) -> dict[str, int]:
        """Addresses of C functions and of numbers that others change."""
        names = (*_MEMORY, *_MATHS, *(self.waiting.calls if self.pool is not None else ()))
        found = {name: address_of_any(c_libraries(), name) for name in names}
        numbers: dict[str, ctypes.c_int32 | ctypes.c_uint32] = {"nnc_num_threads": self.threads, **_VARIABLES}
        if self.pool is not None:
            numbers["nnc_workers"] = self.pool.present
        if self.openmp.library is not None:
            found |= {name: address_of(self.openmp.library, name) for name in ("omp_set_num_threads", *STANDINS)}
        if self.has_team:
            found |= {name: address_of_any(c_libraries(), name) for name in TEAM_CALLS}
            numbers["nnc_team_key"] = thread_key()
        return {name: ctypes.addressof(number) for name, number in numbers.items()} | {
            name: address for name, address in found.items() if address is not None
        }


def c_libraries(system: str = sys.platform) -> list[ctypes.CDLL]:
    """Returns the libraries with C's functions and the system's: Python is linked to them, but on Windows."""
    if system != "win32":
        return [ctypes.CDLL(None)]
    return [ctypes.CDLL(name) for name in ("ucrtbase", "kernel32", "ntdll")]


def address_of_any(libraries: Iterable[ctypes.CDLL], name: str) -> int | None:
    """Returns the address of a function in the first library that has it."""
    return next((found for library in libraries if (found := address_of(library, name)) is not None), None)


# For processors without the instruction, where no libm is at hand. float32: the product is exact in float64. float64: the rounding
# errors of product and sum (Dekker, 1971; Knuth) are added in the end: right but for ties, and for products that overflow.
FMA_TEXT = """
define weak hidden float @fmaf(float %x, float %y, float %z) nounwind {
  %x.wide = fpext float %x to double
  %y.wide = fpext float %y to double
  %z.wide = fpext float %z to double
  %product = fmul double %x.wide, %y.wide
  %sum = fadd double %product, %z.wide
  %result = fptrunc double %sum to float
  ret float %result
}

define weak hidden double @fma(double %x, double %y, double %z) nounwind {
  %product = fmul double %x, %y
  %x.scaled = fmul double %x, 134217729.0
  %x.rest = fsub double %x.scaled, %x
  %x.high = fsub double %x.scaled, %x.rest
  %x.low = fsub double %x, %x.high
  %y.scaled = fmul double %y, 134217729.0
  %y.rest = fsub double %y.scaled, %y
  %y.high = fsub double %y.scaled, %y.rest
  %y.low = fsub double %y, %y.high
  %high = fmul double %x.high, %y.high
  %high.left = fsub double %high, %product
  %cross = fmul double %x.high, %y.low
  %crossed = fadd double %high.left, %cross
  %other = fmul double %x.low, %y.high
  %others = fadd double %crossed, %other
  %low = fmul double %x.low, %y.low
  %product.error = fadd double %others, %low
  %sum = fadd double %product, %z
  %back = fsub double %sum, %product
  %sum.rest = fsub double %sum, %back
  %product.left = fsub double %product, %sum.rest
  %z.left = fsub double %z, %back
  %sum.error = fadd double %product.left, %z.left
  %error = fadd double %sum.error, %product.error
  %exact = fadd double %sum, %error
  %is.usual = fcmp ord double %exact, 0.0
  %result = select i1 %is.usual, double %exact, double %sum
  ret double %result
}
"""


def alone_text(architecture: str) -> str:
    """Returns the functions that printed code may call where it has no threads, as LLVM's text for a processor family."""
    return _SERIAL_LOOPS + float_mode_text(architecture)


# -- float16 -----------------------------------------------------------------------------------------------------------

# float16 to float32 and back, for processors that have no instructions for it: code generation calls functions of these names.
#
# A system's compiler would bring them in a library of its own.


def conversions_text() -> str:
    """Both, as LLVM's text. Numbers are rounded to nearest, halves to even."""
    functions = [
        _function("__truncsfhf2", dtypes.float32, dtypes.float16, _half_of_float),
        _function("__extendhfsf2", dtypes.float16, dtypes.float32, _float_of_half),
    ]
    return "\n".join(code.text() for code in functions)


def _function(name: str, source: DType, target: DType, body: Callable[[Code, Value], Value]) -> Code:
    code = Code(name, [(scalar_type(source), "x")], returns=scalar_type(target))
    code.ret(body(code, Value("%x", source)))
    return code


def _word(code: Code, value: int) -> Value:
    return code.constant(value, dtypes.uint32)


def _half_of_float(code: Code, x: Value) -> Value:
    bits = code.bitcast(x, dtypes.uint32)
    sign = code.and_(bits, _word(code, 0x80000000))
    size = code.xor(bits, sign)
    odd = code.and_(code.shr(size, _word(code, 13)), _word(code, 1))
    # Another exponent, and all but half a unit for rounding.
    shifted = code.sub(size, _word(code, ((127 - 15) << 23) - 0xFFF))
    normal = code.shr(code.add(shifted, odd), _word(code, 13))
    # 0.5 has the smallest float16 as its last bit, so adding it rounds there.
    sum_ = code.add(code.bitcast(size, dtypes.float32), code.constant(0.5, dtypes.float32))
    small = code.sub(code.bitcast(sum_, dtypes.uint32), _word(code, 0x3F000000))
    not_finite = code.select(
        code.compare("gt", size, _word(code, 0x7F800000)), _word(code, 0x7E00), _word(code, 0x7C00)
    )
    result = code.select(code.compare("lt", size, _word(code, 113 << 23)), small, normal)
    result = code.select(code.compare("ge", size, _word(code, 143 << 23)), not_finite, result)
    result = code.or_(result, code.shr(sign, _word(code, 16)))
    return code.bitcast(code.convert(result, dtypes.uint16), dtypes.float16)


def _float_of_half(code: Code, x: Value) -> Value:
    bits = code.convert(code.bitcast(x, dtypes.uint16), dtypes.uint32)
    sign = code.shl(code.and_(bits, _word(code, 0x8000)), _word(code, 16))
    size = code.shl(code.and_(bits, _word(code, 0x7FFF)), _word(code, 13))
    exponent = code.and_(size, _word(code, 0x7C00 << 13))
    normal = code.add(size, _word(code, (127 - 15) << 23))
    not_finite = code.add(normal, _word(code, (128 - 16) << 23))
    smallest = code.bitcast(_word(code, 113 << 23), dtypes.float32)
    scaled = code.sub(code.bitcast(code.add(normal, _word(code, 1 << 23)), dtypes.float32), smallest)
    result = code.select(code.compare("eq", exponent, _word(code, 0)), code.bitcast(scaled, dtypes.uint32), normal)
    result = code.select(code.compare("eq", exponent, _word(code, 0x7C00 << 13)), not_finite, result)
    return code.bitcast(code.or_(result, sign), dtypes.float32)
