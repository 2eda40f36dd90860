"""How threads sleep until a word of memory changes, as LLVM's text: by Linux's futex, else by a lock and condition variables.

    nnc.rest(word, condition, seen)     sleeps where the word is still `seen`; it may return early
    nnc.rouse(word, condition, count)   wakes those up that sleep on the word: `count` of them at least
    nnc.losses()                        how often the system took the processor from this thread, where it tells threads: on Linux

A thread that changes a word calls `rouse` afterwards. Sleepers of one condition are woken together, so each word has its own.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from nnc.base.options import chosen_wait

# workers wait for work, a caller for workers, and members of a team for each other
CONDITIONS = ("called", "finished", "met")


class WaitingText(NamedTuple):
    """Text that defines `nnc.rest`, `nnc.rouse`, `nnc.yield` and `nnc.losses`, and the C functions that it calls."""

    text: str
    calls: tuple[str, ...]


_FUTEX = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @getrusage(i32, ptr)

define internal void @nnc.rest(ptr %word, ptr %condition, i32 %seen) nounwind {
  %value = zext i32 %seen to i64
  %slept = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %word, i64 128, i64 %value, ptr null)
  ret void
}

define internal void @nnc.rouse(ptr %word, ptr %condition, i64 %count) nounwind {
  %woken = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %word, i64 129, i64 %count)
  ret void
}

define internal void @nnc.yield() nounwind {
  %yielded = call i32 @sched_yield()
  ret void
}

define internal i64 @nnc.losses() nounwind {
  %usage = alloca [18 x i64], align 8 ; struct rusage of this thread: its last word counts them
  %asked = call i32 @getrusage(i32 1, ptr %usage)
  %at = getelementptr i64, ptr %usage, i64 17
  %times = load i64, ptr %at
  ret i64 %times
}
"""

# The word changes before its changer takes the lock, so a thread that looks at it with the lock sees the change, or sleeps already.
_LOCKED = """
@nnc.lock = internal global [16 x i64] [i64 <LOCK>, <ZEROS>], align 128

define internal void @nnc.rest(ptr %word, ptr %condition, i32 %seen) nounwind {
  call <TAKE>(ptr @nnc.lock)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %unchanged = icmp eq i32 %now, %seen
  br i1 %unchanged, label %sleep, label %awake
sleep:
  call <SLEEP>
  br label %awake
awake:
  call <GIVE>(ptr @nnc.lock)
  ret void
}

define internal void @nnc.rouse(ptr %word, ptr %condition, i64 %count) nounwind {
  call <TAKE>(ptr @nnc.lock)
  call <WAKE>(ptr %condition)
  call <GIVE>(ptr @nnc.lock)
  ret void
}

define internal void @nnc.yield() nounwind {
  %yielded = call i32 @<YIELD>()
  ret void
}

define internal i64 @nnc.losses() nounwind {
  ret i64 0
}
"""

_ZEROS = ", ".join(["i64 0"] * 15)


class _Locks(NamedTuple):
    """A system's functions, with the types of their results, and the first words of an unused lock and condition variable."""

    lock: int
    condition: int
    take: str
    give: str
    sleep: str
    sleep_arguments: str
    wake: str
    yields: str

    def waiting(self) -> WaitingText:
        """Returns the text that is made of them."""
        kinds = ", ".join(argument.split()[0] for argument in self.sleep_arguments.split(", "))
        functions = {self.take: "ptr", self.give: "ptr", self.sleep: kinds, self.wake: "ptr", f"i32 @{self.yields}": ""}
        lines = [f"declare {function}({taken})" for function, taken in functions.items()]
        lines += [
            f"@nnc.{name} = internal global [16 x i64] [i64 {self.condition}, {_ZEROS}], align 128"
            for name in CONDITIONS
        ]
        text = "\n".join(lines) + _LOCKED
        for mark, value in {
            "TAKE": self.take, "GIVE": self.give, "SLEEP": f"{self.sleep}({self.sleep_arguments})", "WAKE": self.wake,
            "LOCK": str(self.lock), "ZEROS": _ZEROS, "YIELD": self.yields,
        }.items():  # fmt: skip
            text = text.replace(f"<{mark}>", value)
        return WaitingText(text, tuple(function.partition("@")[2] for function in functions))


_POSIX = _Locks(
    0, 0, "i32 @pthread_mutex_lock", "i32 @pthread_mutex_unlock", "i32 @pthread_cond_wait", "ptr %condition, ptr @nnc.lock",
    "i32 @pthread_cond_broadcast", "sched_yield",
)  # fmt: skip
_LOCKS: Mapping[str, _Locks] = MappingProxyType(
    {
        "linux": _POSIX,
        "darwin": _POSIX._replace(lock=0x32AAABA7, condition=0x3CB0B1BB),  # signatures, by which macOS knows unused ones
        "win32": _Locks(
            0, 0, "void @AcquireSRWLockExclusive", "void @ReleaseSRWLockExclusive", "i32 @SleepConditionVariableSRW",
            "ptr %condition, ptr @nnc.lock, i32 -1, i32 0", "void @WakeAllConditionVariable", "SwitchToThread",
        ),
    }
)  # fmt: skip
SYSTEMS = tuple(_LOCKS)
_FUTEX_CALLS: Mapping[str, int] = MappingProxyType({"x86_64": 202, "aarch64": 98})  # the number of the system call


def waiting_of(system: str = sys.platform, machine: str | None = None) -> WaitingText:
    """Returns how threads wait on a system; this one as NNC_WAIT says."""
    if system == "linux" and chosen_wait() != "condition":
        number = _FUTEX_CALLS[machine or platform.machine()]
        unused = "".join(f"@nnc.{name} = internal global i32 0\n" for name in CONDITIONS)
        return WaitingText(unused + _FUTEX.replace("<FUTEX>", str(number)), ("syscall", "sched_yield", "getrusage"))
    return _LOCKS[system].waiting()
