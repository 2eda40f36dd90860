"""nnc's own threads for the loops of printed kernels. A thread that starts a loop never waits for work that has not begun.

OpenMP's loops end when every thread of the team has arrived. Where other processes keep the processors busy, that is a time slice
of the scheduler for each loop, and a program has hundreds. Here a loop is cut into parts, which the caller and the workers claim
one by one: a worker that comes late finds nothing left, and the caller waits only for parts that workers have claimed.

A worker looks out for the next job for a while before it sleeps. Beside other processes that costs more than it brings: the system
counts the time, and takes the processor away amid a part that the caller then waits for. So a worker that lost its processor since
it asked the system before sleeps at once, and looks out for short times only until it has kept it for a while.

There is one job at a time. A thread that finds the pool taken, as a loop within a part does, runs its loop alone.

    job       begins with the word [generation: 32 | left: 16 | first: 16], which is changed by read-modify-write operations only.
              Parts first ... first + left - 1 are to be claimed. The caller takes the first of them and workers take the last, so
              that in loops that follow each other the same processor sees the same elements.
              Function, arguments, share and rest follow, written before the parts appear in the word. Nobody writes them while a
              claimed part is not counted in `done`, and nobody reads them without having claimed a part.
    done      the number of parts that workers have finished. Every change of it and of the word releases the thread's earlier
              writes; every claim acquires it, as does the caller's last look at `done`.
    sleepers  workers that sleep, or are about to, until the generation changes. A worker counts itself and then looks at the word,
              the caller changes the word and then looks at `sleepers`; all four are sequentially consistent, so one sees the other.
              In between `nnc.rest` (`waiting.py`) compares the generation once more.
    waiting   whether the caller sleeps, or is about to, until `done` changes: the same, the other way round.
    taken     whether a loop has the pool.
    workers   the number of workers. They leave only where they find the pool free, so that the holder of the pool can count on them
              (`team.py` does).
"""

from __future__ import annotations

import _thread
import ctypes
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nnc.backends.cpu.compiler.engine import LoadedObjects
from nnc.backends.cpu.compiler.float_mode import float_mode_text
from nnc.backends.cpu.threads.waiting import SYSTEMS, WaitingText, waiting_of
from nnc.base.target import Threads

WORK, WAKE = "nnc_work", "nnc_wake"
POOL_EXPORTS = (WORK, WAKE)
_MOST_PARTS = 1 << 14


class _Processor(NamedTuple):
    """LLVM's name for the pause instruction of waiting loops, with its operands."""

    pause: str
    operands: str


_X86, _ARM = _Processor("llvm.x86.sse2.pause", ""), _Processor("llvm.aarch64.isb", "i32 15")
_PROCESSORS: Mapping[str, _Processor] = MappingProxyType(
    {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}  # as systems name them
)


def is_supported(system: str = sys.platform, machine: str | None = None) -> bool:
    """Whether there is a pool on this system."""
    return system in SYSTEMS and (machine or platform.machine()) in _PROCESSORS and sys.maxsize > 1 << 32


class Pool:
    """The workers of one runtime. `count` is how many threads a loop may take, the caller's among them; `present` how many workers
    have come.

    `start` is called when the compiled functions are there; until then, and after `close`, callers work alone.
    """

    def __init__(self, count: ctypes.c_int32) -> None:
        self.count = count
        self.present = ctypes.c_int32(0)
        self._changed = threading.Condition()
        self._workers: set[int] = set()
        self._work: Callable[[int], None] | None = None
        self._wake: Callable[[], None] | None = None
        self._held: LoadedObjects | None = None

    def start(self, runtime: LoadedObjects) -> None:
        """Starts the workers on the functions of a compiled runtime."""
        with self._changed:
            self._work = ctypes.CFUNCTYPE(None, ctypes.c_int32)(runtime.addresses[WORK])
            self._wake = ctypes.CFUNCTYPE(None)(runtime.addresses[WAKE])
            self._held = runtime
            self._hire()

    def resize(self, number: int) -> None:
        """Sets how many threads a loop may take. Surplus workers leave after their present loop."""
        with self._changed:
            self.count.value = number
            self._hire()
            if self._wake is not None:
                self._wake()

    def close(self) -> None:
        """Lets all workers leave, and waits until they have."""
        self.resize(1)
        with self._changed:
            self._changed.wait_for(lambda: not self._workers)

    def after_fork(self) -> None:
        """A forked process has no workers, and no thread that would free another thread's locks."""
        self._changed = threading.Condition()
        self._workers = set()
        self.present.value = 0
        self._wake = None  # nobody sleeps, and a lock of sleepers may be another thread's for ever

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def _hire(self) -> None:
        """Starts the workers that are missing, as far as the system gives threads."""
        if self._work is None:
            return
        for number in sorted(set(range(1, self.count.value)) - self._workers):
            try:  # `Thread.start` would wait until the thread runs, which may take a time slice of the scheduler for each
                _thread.start_new_thread(self._employ, (number,))
            except RuntimeError:
                return
            self._workers.add(number)

    def _employ(self, number: int) -> None:
        """Runs a worker's thread: the compiled function returns when there are too many workers."""
        while True:
            with self._changed:
                if number >= self.count.value or self._work is None:
                    self._workers.remove(number)
                    self._changed.notify_all()
                    return
                work = self._work
            work(number)


def pool_text(
    threads: Threads, architecture: str | None = None, more: str = "", waiting: WaitingText | None = None
) -> str:
    """`nnc_parallel_for`, the workers' loop, the function that wakes them up, and `more`, as LLVM's text.

    Args:
        threads: the figures of the machine.
        architecture: the processor family; None: this one.
        more: text that is printed behind.
        waiting: how threads sleep; None: as on Linux.
    """
    processor = _PROCESSORS[architecture or platform.machine()]
    waiting = waiting or waiting_of("linux", architecture)
    text = _TEXT + more + waiting.text + float_mode_text(architecture)
    for name, value in {
        "DECLARE_PAUSE": f"declare void @{processor.pause}({processor.operands.partition(' ')[0]})",
        "PAUSE": f"call void @{processor.pause}({processor.operands})",
        "PARTS_OF_A_THREAD": threads.parts_of_a_thread,
        "MOST_PARTS": _MOST_PARTS,
        "CALLER_PAUSES": threads.caller_pauses,
        "WORKER_PAUSES": threads.worker_pauses,
        "LOOK_MASK": threads.look_pauses - 1,
        "SHORT_LOOKS": threads.short_looks,
    }.items():
        text = text.replace(f"<{name}>", str(value))
    return text


# Both processors are little-endian: the generation lies 4 bytes after the word's begin. Words that different threads
# write at the same time lie 128 bytes apart.
# The end of `nnc_parallel_for` where this thread does everything itself.
ALONE = """\
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %finished
run:
  call void %fn(ptr %args, i64 0, i64 %n)
  br label %finished
finished:
  ret void
}
"""

_TEXT = (
    """\
%nnc.job = type { i64, ptr, ptr, i64, i64, i64 } ; the last is the caller's mode of floating-point arithmetic
@nnc.job = internal global %nnc.job zeroinitializer, align 128
@nnc.done = internal global [16 x i64] zeroinitializer, align 128
@nnc.waiting = internal global [32 x i32] zeroinitializer, align 128
@nnc.sleepers = internal global [32 x i32] zeroinitializer, align 128
@nnc.taken = internal global [32 x i32] zeroinitializer, align 128
@nnc_num_threads = external global i32
@nnc_workers = external global i32
<DECLARE_PAUSE>
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define void @nnc_parallel_for(ptr %fn, ptr %args, i64 %n, i64 %grain) nounwind {
  %least = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %worth = sdiv i64 %n, %least
  %many = icmp sgt i64 %worth, 1
  br i1 %many, label %ask, label %alone
ask:
  %allowed.i32 = load atomic i32, ptr @nnc_num_threads monotonic, align 4
  %allowed = sext i32 %allowed.i32 to i64
  %threads = icmp sgt i64 %allowed, 1
  br i1 %threads, label %take, label %alone
take:
  %is.mine = call i1 @nnc.take()
  br i1 %is.mine, label %share.out, label %alone
share.out:
  %fitting = mul i64 %allowed, <PARTS_OF_A_THREAD>
  %bounded = call i64 @llvm.smin.i64(i64 %fitting, i64 <MOST_PARTS>)
  %parts = call i64 @llvm.smin.i64(i64 %bounded, i64 %worth)
  %share = udiv i64 %n, %parts
  %rest = urem i64 %n, %parts
  %helpers = sub i64 %parts, 1
  call void @nnc.publish(ptr %fn, ptr %args, i64 %parts, i64 %share, i64 %rest, i64 %helpers)
  call void @nnc.finish(ptr %fn, ptr %args, i64 %parts, i64 %share, i64 %rest)
  ret void
alone:
"""
    + ALONE
    + """
define internal i1 @nnc.take() nounwind {
  %seen = load atomic i32, ptr @nnc.taken monotonic, align 4
  %seems.free = icmp eq i32 %seen, 0
  br i1 %seems.free, label %try, label %no
try:
  %taking = cmpxchg ptr @nnc.taken, i32 0, i32 1 acquire monotonic
  %is.mine = extractvalue { i32, i1 } %taking, 1
  ret i1 %is.mine
no:
  ret i1 false
}

define internal void @nnc.publish(ptr %fn, ptr %args, i64 %parts, i64 %share, i64 %rest, i64 %helpers) nounwind {
  store ptr %fn, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 1)
  store ptr %args, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 2)
  store i64 %share, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 3)
  store i64 %rest, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 4)
  %mode = call i64 @nnc_float_mode()
  store i64 %mode, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 5)
  store atomic i64 0, ptr @nnc.done monotonic, align 8
  %before = load atomic i64, ptr @nnc.job monotonic, align 8
  %old.low = and i64 %before, 4294967295
  %new.low = shl i64 %parts, 16
  %low.step = sub i64 %new.low, %old.low
  %step = add i64 %low.step, 4294967296
  %published = atomicrmw add ptr @nnc.job, i64 %step seq_cst
  %asleep = load atomic i32, ptr @nnc.sleepers seq_cst, align 4
  %some.asleep = icmp ne i32 %asleep, 0
  br i1 %some.asleep, label %wake, label %published.now
wake:
  call void @nnc.rouse(ptr getelementptr (i8, ptr @nnc.job, i64 4), ptr @nnc.called, i64 %helpers)
  br label %published.now
published.now:
  ret void
}

; The caller's work on a job, which ends with it: it claims parts, waits for those that workers claimed, and gives the pool back.
define internal void @nnc.finish(ptr %fn, ptr %args, i64 %parts, i64 %share, i64 %rest) nounwind {
begin:
  br label %claim
claim:
  %mine = phi i64 [ 0, %begin ], [ %mine, %again ], [ %mine.now, %run.part ]
  %word = load atomic i64, ptr @nnc.job monotonic, align 8
  %left.mask = and i64 %word, 4294901760
  %none.left = icmp eq i64 %left.mask, 0
  br i1 %none.left, label %others, label %try
try:
  %without.first = sub i64 %word, 65535
  %trying = cmpxchg weak ptr @nnc.job, i64 %word, i64 %without.first acq_rel monotonic
  %has.claimed = extractvalue { i64, i1 } %trying, 1
  br i1 %has.claimed, label %run.part, label %again
again:
  <PAUSE>
  br label %claim
run.part:
  %p = and i64 %word, 65535
  call void @nnc.part(ptr %fn, ptr %args, i64 %share, i64 %rest, i64 %p)
  %mine.now = add i64 %mine, 1
  br label %claim
others:
  %theirs = sub i64 %parts, %mine
  br label %wait
wait:
  %pauses = phi i64 [ 0, %others ], [ %pauses.now, %spin ], [ 0, %awake ]
  %done = load atomic i64, ptr @nnc.done acquire, align 8
  %all.done = icmp eq i64 %done, %theirs
  br i1 %all.done, label %release, label %wait.more
wait.more:
  %soon = icmp ult i64 %pauses, <CALLER_PAUSES>
  br i1 %soon, label %spin, label %sleep
spin:
  <PAUSE>
  %pauses.now = add i64 %pauses, 1
  br label %wait
sleep:
  store atomic i32 1, ptr @nnc.waiting seq_cst, align 4
  %done.again = load atomic i64, ptr @nnc.done seq_cst, align 8
  %still = icmp ne i64 %done.again, %theirs
  br i1 %still, label %rest.now, label %awake
rest.now:
  %done.low = trunc i64 %done.again to i32
  call void @nnc.rest(ptr @nnc.done, ptr @nnc.finished, i32 %done.low)
  br label %awake
awake:
  store atomic i32 0, ptr @nnc.waiting monotonic, align 4
  br label %wait
release:
  store atomic i32 0, ptr @nnc.taken release, align 4
  ret void
}

define internal void @nnc.part(ptr %fn, ptr %args, i64 %share, i64 %rest, i64 %p) nounwind {
  %before = mul i64 %share, %p
  %extra = call i64 @llvm.smin.i64(i64 %p, i64 %rest)
  %begin = add i64 %before, %extra
  %is.longer = icmp ult i64 %p, %rest
  %more = zext i1 %is.longer to i64
  %length = add i64 %share, %more
  %end = add i64 %begin, %length
  call void %fn(ptr %args, i64 %begin, i64 %end)
  ret void
}

define void @nnc_work(i32 %number) nounwind {
entry:
  %lost = alloca i64, align 8
  %short = alloca i64, align 8
  store i64 0, ptr %lost
  store i64 0, ptr %short
  %came = atomicrmw add ptr @nnc_workers, i32 1 seq_cst
  br label %busy
busy:
  br label %look
look:
  %pauses = phi i64 [ 0, %busy ], [ %pauses.now, %spin ], [ %pauses, %again ], [ %pauses, %pool.taken ]
  %word = load atomic i64, ptr @nnc.job acquire, align 8
  %left.mask = and i64 %word, 4294901760
  %none.left = icmp eq i64 %left.mask, 0
  br i1 %none.left, label %stay, label %try
stay:
  %allowed = load atomic i32, ptr @nnc_num_threads monotonic, align 4
  %wanted = icmp slt i32 %number, %allowed
  br i1 %wanted, label %idle, label %leave
try:
  %without.last = sub i64 %word, 65536
  %trying = cmpxchg weak ptr @nnc.job, i64 %word, i64 %without.last acq_rel monotonic
  %has.claimed = extractvalue { i64, i1 } %trying, 1
  br i1 %has.claimed, label %run, label %again
again:
  <PAUSE>
  br label %look
run:
  %fn = load ptr, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 1)
  %args = load ptr, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 2)
  %share = load i64, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 3)
  %rest = load i64, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 4)
  %mode = load i64, ptr getelementptr (%nnc.job, ptr @nnc.job, i64 0, i32 5)
  call void @nnc_set_float_mode(i64 %mode)
  %first = and i64 %word, 65535
  %left.high = lshr i64 %left.mask, 16
  %behind = add i64 %first, %left.high
  %p = sub i64 %behind, 1
  call void @nnc.part(ptr %fn, ptr %args, i64 %share, i64 %rest, i64 %p)
  %counted = atomicrmw add ptr @nnc.done, i64 1 seq_cst
  %waiting = load atomic i32, ptr @nnc.waiting seq_cst, align 4
  %is.waiting = icmp ne i32 %waiting, 0
  br i1 %is.waiting, label %tell, label %busy
tell:
  call void @nnc.rouse(ptr @nnc.done, ptr @nnc.finished, i64 1)
  br label %busy
idle:
  %in.look = and i64 %pauses, <LOOK_MASK>
  %look.ends = icmp eq i64 %in.look, <LOOK_MASK>
  br i1 %look.ends, label %ask, label %keep
ask:
  %times = call i64 @nnc.losses()
  %times.before = load i64, ptr %lost
  store i64 %times, ptr %lost
  %kept = icmp eq i64 %times, %times.before
  br i1 %kept, label %calm, label %crowded
crowded:
  store i64 <SHORT_LOOKS>, ptr %short
  br label %sleep
calm:
  %shorts = load i64, ptr %short
  %none.short = icmp eq i64 %shorts, 0
  br i1 %none.short, label %keep, label %one.less
one.less:
  %fewer = sub i64 %shorts, 1
  store i64 %fewer, ptr %short
  br label %sleep
keep:
  %soon = icmp ult i64 %pauses, <WORKER_PAUSES>
  br i1 %soon, label %spin, label %sleep
spin:
  <PAUSE>
  %pauses.now = add i64 %pauses, 1
  br label %look
sleep:
  %slept.before = atomicrmw add ptr @nnc.sleepers, i32 1 seq_cst
  %word.again = load atomic i64, ptr @nnc.job seq_cst, align 8
  %unchanged = icmp eq i64 %word.again, %word
  br i1 %unchanged, label %rest.now, label %awake
rest.now:
  %generation.high = lshr i64 %word, 32
  %generation = trunc i64 %generation.high to i32
  call void @nnc.rest(ptr getelementptr (i8, ptr @nnc.job, i64 4), ptr @nnc.called, i32 %generation)
  br label %awake
awake:
  %slept.after = atomicrmw sub ptr @nnc.sleepers, i32 1 monotonic
  br label %busy
leave:
  %alone = call i1 @nnc.take()
  br i1 %alone, label %left, label %pool.taken
pool.taken:
  call void @nnc.yield()
  br label %look
left:
  %went = atomicrmw sub ptr @nnc_workers, i32 1 seq_cst
  store atomic i32 0, ptr @nnc.taken release, align 4
  ret void
}

; A changed generation keeps those from falling asleep who have not seen what was changed before.
define void @nnc_wake() nounwind {
  %before = atomicrmw add ptr @nnc.job, i64 4294967296 seq_cst
  call void @nnc.rouse(ptr getelementptr (i8, ptr @nnc.job, i64 4), ptr @nnc.called, i64 2147483647)
  ret void
}
"""
)
