"""The runtime of compiled code: loops in threads, and the C functions that code generation itself asks for.

Loops run in nnc's own threads (`pool.py`); where there are none for the system, in threads of GCC's OpenMP runtime.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from functools import cached_property

from nnc.backends.cpu.compiler.conversions import NAMES, conversions_text
from nnc.backends.cpu.compiler.float_mode import EXPORTS as FLOAT_MODE
from nnc.backends.cpu.compiler.float_mode import float_mode_text
from nnc.backends.cpu.compiler.preparation import PREPARE, prepare_text
from nnc.backends.cpu.threads.openmp import Openmp
from nnc.backends.cpu.threads.pool import ALONE, POOL_CALLS, POOL_EXPORTS, Pool, pool_text
from nnc.backends.cpu.threads.team import STANDINS, TEAM_CALLS, TEAM_TEXT, thread_key
from nnc.device import machine_of_device
from nnc.device.target import Target

_OPENMP_LOOPS = (
    """\
@nnc_num_threads = external global i32
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_in_parallel()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal void @part(ptr %work) nounwind {
  %args.at = getelementptr i8, ptr %work, i64 8
  %n.at = getelementptr i8, ptr %work, i64 16
  %mode.at = getelementptr i8, ptr %work, i64 24
  %mode = load i64, ptr %mode.at
  %own = call i64 @nnc_float_mode()
  call void @nnc_set_float_mode(i64 %mode)
  %fn = load ptr, ptr %work
  %args = load ptr, ptr %args.at
  %n = load i64, ptr %n.at
  %number = call i32 @omp_get_thread_num()
  %count = call i32 @omp_get_num_threads()
  %me = zext i32 %number to i64
  %all = zext i32 %count to i64
  %share = udiv i64 %n, %all
  %rest = urem i64 %n, %all
  %before = mul i64 %share, %me
  %extra = call i64 @llvm.smin.i64(i64 %me, i64 %rest)
  %begin = add i64 %before, %extra
  %one.more = icmp ult i64 %me, %rest
  %more = zext i1 %one.more to i64
  %length = add i64 %share, %more
  %end = add i64 %begin, %length
  %some = icmp ne i64 %length, 0
  br i1 %some, label %run, label %done
run:
  call void %fn(ptr %args, i64 %begin, i64 %end)
  br label %done
done:
  call void @nnc_set_float_mode(i64 %own)
  ret void
}

define void @nnc_parallel_for(ptr %fn, ptr %args, i64 %n, i64 %grain) nounwind {
  %work = alloca [4 x i64], align 8
  %least = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %many = icmp sgt i64 %n, %least
  br i1 %many, label %ask, label %alone
ask:
  %allowed.i32 = load i32, ptr @nnc_num_threads
  %allowed = sext i32 %allowed.i32 to i64
  %parts = sdiv i64 %n, %least
  %team = call i64 @llvm.smin.i64(i64 %parts, i64 %allowed)
  %pays = icmp sgt i64 %team, 1
  br i1 %pays, label %nested, label %alone
nested:
  %within = call i32 @omp_in_parallel()
  %free = icmp eq i32 %within, 0
  br i1 %free, label %share, label %alone
share:
  %args.at = getelementptr i8, ptr %work, i64 8
  %n.at = getelementptr i8, ptr %work, i64 16
  store ptr %fn, ptr %work
  store ptr %args, ptr %args.at
  store i64 %n, ptr %n.at
  %mode.at = getelementptr i8, ptr %work, i64 24
  %mode = call i64 @nnc_float_mode()
  store i64 %mode, ptr %mode.at
  %team.i32 = trunc i64 %team to i32
  ; threads that OpenMP makes now have for good the mode in which they are made
  call void @nnc_keep_denormals()
  call void @GOMP_parallel(ptr @part, ptr %work, i32 %team.i32, i32 0)
  call void @nnc_set_float_mode(i64 %mode)
  ret void
alone:
"""
    + ALONE
)

_SERIAL_LOOPS = (
    """\
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

# nnc_parallel_for(fn, args, n, grain): fn(args, begin, end) on parts of 0..n, of `grain` items at least; in threads where there is
# more than one part. nnc_take_threads(): libraries that use OpenMP by themselves take `nnc_num_threads` threads when this thread
# calls them. nnc_prepare: see there.
EXPORTS = ("nnc_parallel_for", "nnc_take_threads", PREPARE, *NAMES, *FLOAT_MODE)
_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_in_parallel", "omp_set_num_threads")
_MEMORY = ("memcpy", "memmove", "memset")
_MATHS = tuple(
    f"{name}{kind}"
    for name in (
        "fmod", "fma", "pow", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan",
        "floor", "ceil", "trunc", "rint", "round", "roundeven", "nearbyint", "ldexp", "frexp",
    )
    for kind in ("", "f")
)  # fmt: skip


def address_of(library: ctypes.CDLL, name: str) -> int | None:
    """Returns the address of a function of a C library; None where it has no such function."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


@dataclass(frozen=True, eq=False)
class Runtime:
    """The text of the runtime and the addresses that it and all other texts may use.

    `threads` holds how many threads a loop may take, where compiled code reads it. Loops run in the threads of `pool`, else of
    `openmp`, else in the caller's alone.
    """

    openmp: Openmp
    threads: ctypes.c_int32
    pool: Pool | None = None
    machine: Target = field(default_factory=machine_of_device)

    @property
    def has_team(self) -> bool:
        """Whether the pool can stand in for OpenMP."""
        return self.pool is not None and self.openmp.library is not None

    @cached_property
    def text(self) -> str:
        """The functions that the runtime adds, as LLVM's text."""
        has_openmp = self.openmp.library is not None
        alternative = _OPENMP_LOOPS if has_openmp else _SERIAL_LOOPS
        prepare, team = prepare_text(self.machine.memory.page_bytes), TEAM_TEXT if self.has_team else ""
        loops = alternative + float_mode_text() if self.pool is None else pool_text(self.machine.threads, more=team)
        return loops + (_TAKE_THREADS if has_openmp else _TAKE_NOTHING) + prepare + conversions_text()

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
        c = ctypes.CDLL(
            "msvcrt" if sys.platform == "win32" else None
        )  # Python is linked to the C and the maths library
        names = (*_MEMORY, *_MATHS) if self.pool is None else (*_MEMORY, *_MATHS, *POOL_CALLS, *TEAM_CALLS)
        found = {name: address_of(c, name) for name in names}
        if self.openmp.library is not None:
            found |= {name: address_of(self.openmp.library, name) for name in (*_OPENMP, *STANDINS)}
        numbers: dict[str, ctypes.c_int32 | ctypes.c_uint32] = {"nnc_num_threads": self.threads}
        if self.pool is not None:
            numbers |= {"nnc_workers": self.pool.present, "nnc_team_key": thread_key()}
        return {name: ctypes.addressof(number) for name, number in numbers.items()} | {
            name: address for name, address in found.items() if address is not None
        }
