"""The runtime of compiled code: loops in threads, and the C functions that code generation itself asks for.

Loops run in nnc's own threads (`pool.py`); where there are none for the system, in the caller's thread alone.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from functools import cached_property

from nnc.backends.cpu.compiler.conversions import NAMES, conversions_text
from nnc.backends.cpu.compiler.float_mode import EXPORTS as FLOAT_MODE
from nnc.backends.cpu.compiler.float_mode import float_mode_text
from nnc.backends.cpu.compiler.prefetch import PREPARE, prepare_text
from nnc.backends.cpu.threads.openmp import Openmp
from nnc.backends.cpu.threads.pool import ALONE, POOL_CALLS, POOL_EXPORTS, Pool, pool_text
from nnc.backends.cpu.threads.team import STANDINS, TEAM_CALLS, TEAM_TEXT, thread_key
from nnc.base.machine import address_of
from nnc.device import machine_of_device
from nnc.device.target import Target

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

# nnc_parallel_for(fn, args, n, grain): fn(args, begin, end) on parts of 0..n, of `grain` items at least; in threads where there is
# more than one part. nnc_take_threads(): libraries that use OpenMP by themselves take `nnc_num_threads` threads when this thread
# calls them. nnc_prepare: see there.
EXPORTS = ("nnc_parallel_for", "nnc_take_threads", PREPARE, *NAMES, *FLOAT_MODE)
_MEMORY = ("memcpy", "memmove", "memset")
_MATHS = tuple(
    f"{name}{kind}"
    for name in (
        "fmod", "fma", "pow", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan",
        "floor", "ceil", "trunc", "rint", "round", "roundeven", "nearbyint", "ldexp", "frexp",
    )
    for kind in ("", "f")
)  # fmt: skip


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
        """Whether the pool can stand in for OpenMP."""
        return self.pool is not None and self.openmp.library is not None

    @cached_property
    def text(self) -> str:
        """The functions that the runtime adds, as LLVM's text."""
        prepare, team = prepare_text(self.machine.memory.page_bytes), TEAM_TEXT if self.has_team else ""
        loops = _SERIAL_LOOPS + float_mode_text() if self.pool is None else pool_text(self.machine.threads, more=team)
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
        # Python is linked to the C and the maths library.
        c = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        names = (*_MEMORY, *_MATHS) if self.pool is None else (*_MEMORY, *_MATHS, *POOL_CALLS, *TEAM_CALLS)
        found = {name: address_of(c, name) for name in names}
        if self.openmp.library is not None:
            found |= {name: address_of(self.openmp.library, name) for name in ("omp_set_num_threads", *STANDINS)}
        numbers: dict[str, ctypes.c_int32 | ctypes.c_uint32] = {"nnc_num_threads": self.threads}
        if self.pool is not None:
            numbers |= {"nnc_workers": self.pool.present, "nnc_team_key": thread_key()}
        return {name: ctypes.addressof(number) for name, number in numbers.items()} | {
            name: address for name, address in found.items() if address is not None
        }
