"""nnc's own threads as a team of OpenMP, for a library that was compiled for GCC's runtime.

Such a library begins a region by GOMP_parallel_start, runs the region's function itself as thread 0, and ends by GOMP_parallel_end;
the function asks for its number and how many there are, and may wait for all others at a barrier. Here the other threads are parts
of a job of the pool (`pool.py`). The caller runs those, too, that nobody has begun when it has finished its own. So a region waits
for late threads only where it has barriers. As a team begins only if there are as many workers as it needs, and none of them
leaves while the pool is taken, a thread that waits for another one waits for a worker that is free to come.

Where the pool is taken, or is too small, the region is one of OpenMP's. Its threads take over the mode of floating-point arithmetic
of the thread that begins it, as the pool's do, and have their own again behind it. Within a region a further one has one thread, as
in OpenMP.

Each thread has a number, 0 outside of a team; within a region of OpenMP's, the thread that began it has a negative one:

    [ regions within this one: 16 | number of the thread: 24 | threads of the team: 24 ]
    [ 1: 1 | address of the region's { function, data, mode, number of the thread before }: 63 ]
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from nnc.errors import BackendError

# Functions of OpenMP, and the functions of nnc that stand in for them.
STANDINS: Mapping[str, str] = MappingProxyType(
    {
        "GOMP_parallel_start": "nnc_team_start",
        "GOMP_parallel_end": "nnc_team_end",
        "GOMP_barrier": "nnc_team_barrier",
        "omp_get_thread_num": "nnc_team_number",
        "omp_get_num_threads": "nnc_team_size",
        "omp_in_parallel": "nnc_team_within",
        "omp_get_max_threads": "nnc_team_most",
    }
)
TEAM_CALLS = ("pthread_getspecific", "pthread_setspecific", "malloc", "free")


@cache
def thread_key() -> ctypes.c_uint32:
    """Makes the key under which each thread stores its number.

    Raises:
        BackendError: the system has no keys left.
    """
    key = ctypes.c_uint32()
    if ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None):
        raise BackendError("the system gives no key for values of threads")
    return key


def _answer(name: str, theirs: str, mine: str, *lines: str) -> str:
    """Returns a function of a number: outside of a team OpenMP's answer, within one `mine`, which `lines` find from %me."""
    return "\n".join([
        f"""
define i32 @{name}() nounwind {{
  %key = load i32, ptr @nnc_team_key
  %me = call i64 @pthread_getspecific(i32 %key)
  %is.outside = icmp sle i64 %me, 0
  br i1 %is.outside, label %openmp, label %mine
openmp:
  %theirs = call i32 @{theirs}()
  ret i32 %theirs
mine:""",
        *(f"  {line}" for line in lines),
        f"  ret i32 {mine}",
        "}\n",
    ])  # fmt: skip


_IS_WITHIN = "%is.within = icmp uge i64 %me, 281474976710656"
_ANSWERS = (
    _answer(
        "nnc_team_number", "omp_get_thread_num", "%found",
        _IS_WITHIN, "%high = lshr i64 %me, 24", "%number = trunc i64 %high to i32",
        "%found = select i1 %is.within, i32 0, i32 %number",
    ),
    _answer(
        "nnc_team_size", "omp_get_num_threads", "%found",
        _IS_WITHIN, "%low = and i64 %me, 16777215", "%size = trunc i64 %low to i32",
        "%found = select i1 %is.within, i32 1, i32 %size",
    ),
    _answer("nnc_team_within", "omp_in_parallel", "1"),
)  # fmt: skip

# To be printed together with the pool.
TEAM_TEXT = """
declare void @GOMP_parallel_start(ptr, ptr, i32)
declare void @GOMP_parallel_end()
declare void @GOMP_barrier()
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_in_parallel()
declare i64 @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, i64)
declare ptr @malloc(i64)
declare void @free(ptr)

%nnc.team.region = type { ptr, ptr, i64, i64 } ; function, data, mode of floating-point arithmetic, number of the thread before
@nnc_team_key = external global i32
@nnc.team = internal global { ptr, ptr, i64 } zeroinitializer, align 128
@nnc.team.met = internal global [32 x i32] zeroinitializer, align 128
@nnc.team.round = internal global [32 x i32] zeroinitializer, align 128
@nnc.team.asleep = internal global [32 x i32] zeroinitializer, align 128

define void @nnc_team_start(ptr %fn, ptr %data, i32 %size) nounwind {
  %key = load i32, ptr @nnc_team_key
  %me = call i64 @pthread_getspecific(i32 %key)
  %is.outside = icmp sle i64 %me, 0
  br i1 %is.outside, label %outside, label %within
within:
  %deeper = add i64 %me, 281474976710656
  %set.deeper = call i32 @pthread_setspecific(i32 %key, i64 %deeper)
  ret void
outside:
  %others.i32 = sub i32 %size, 1
  %others = sext i32 %others.i32 to i64
  %are.some = icmp sgt i32 %others.i32, 0
  br i1 %are.some, label %look, label %openmp
look:
  %within.openmp = call i32 @omp_in_parallel()
  %is.alone = icmp eq i32 %within.openmp, 0
  br i1 %is.alone, label %take, label %openmp
take:
  %is.mine = call i1 @nnc.take()
  br i1 %is.mine, label %count, label %openmp
count:
  %present = load atomic i32, ptr @nnc_workers seq_cst, align 4
  %enough = icmp sge i32 %present, %others.i32
  br i1 %enough, label %begin, label %release
release:
  store atomic i32 0, ptr @nnc.taken release, align 4
  br label %openmp
openmp:
  %mode = call i64 @nnc_float_mode()
  %region = call ptr @malloc(i64 32)
  %written = insertvalue %nnc.team.region poison, ptr %fn, 0
  %with.data = insertvalue %nnc.team.region %written, ptr %data, 1
  %with.mode = insertvalue %nnc.team.region %with.data, i64 %mode, 2
  %whole = insertvalue %nnc.team.region %with.mode, i64 %me, 3
  store %nnc.team.region %whole, ptr %region
  %address = ptrtoint ptr %region to i64
  %marked = or i64 %address, -9223372036854775808
  %set.region = call i32 @pthread_setspecific(i32 %key, i64 %marked)
  ; threads that OpenMP makes now have for good the mode in which they are made
  call void @nnc_keep_denormals()
  call void @GOMP_parallel_start(ptr @nnc.team.openmp, ptr %region, i32 %size)
  call void @nnc_set_float_mode(i64 %mode)
  ret void
begin:
  %threads = zext i32 %size to i64
  store ptr %fn, ptr @nnc.team
  store ptr %data, ptr getelementptr (i8, ptr @nnc.team, i64 8)
  store i64 %threads, ptr getelementptr (i8, ptr @nnc.team, i64 16)
  %set = call i32 @pthread_setspecific(i32 %key, i64 %threads)
  call void @nnc.publish(ptr @nnc.team.part, ptr @nnc.team, i64 %others, i64 1, i64 0, i64 %others)
  ret void
}

; Part p is thread p + 1. A part is done by a worker, or by the caller behind its own.
define internal void @nnc.team.part(ptr %team, i64 %begin, i64 %end) nounwind {
  %key = load i32, ptr @nnc_team_key
  %fn = load ptr, ptr %team
  %data.at = getelementptr i8, ptr %team, i64 8
  %data = load ptr, ptr %data.at
  %threads.at = getelementptr i8, ptr %team, i64 16
  %threads = load i64, ptr %threads.at
  %number = add i64 %begin, 1
  %high = shl i64 %number, 24
  %me = or i64 %high, %threads
  %set = call i32 @pthread_setspecific(i32 %key, i64 %me)
  call void %fn(ptr %data)
  %cleared = call i32 @pthread_setspecific(i32 %key, i64 0)
  ret void
}

; What OpenMP's threads run, but for the one that began the region.
define internal void @nnc.team.openmp(ptr %at) nounwind {
  %region = load %nnc.team.region, ptr %at
  %fn = extractvalue %nnc.team.region %region, 0
  %data = extractvalue %nnc.team.region %region, 1
  %mode = extractvalue %nnc.team.region %region, 2
  %own = call i64 @nnc_float_mode()
  call void @nnc_set_float_mode(i64 %mode)
  call void %fn(ptr %data)
  call void @nnc_set_float_mode(i64 %own)
  ret void
}

define void @nnc_team_end() nounwind {
  %key = load i32, ptr @nnc_team_key
  %me = call i64 @pthread_getspecific(i32 %key)
  %is.outside = icmp sle i64 %me, 0
  br i1 %is.outside, label %openmp, label %mine
openmp:
  call void @GOMP_parallel_end()
  %address = and i64 %me, 9223372036854775807
  %region = inttoptr i64 %address to ptr
  %before.at = getelementptr %nnc.team.region, ptr %region, i64 0, i32 3
  %before = load i64, ptr %before.at
  %set.before = call i32 @pthread_setspecific(i32 %key, i64 %before)
  call void @free(ptr %region)
  ret void
mine:
  %depth = lshr i64 %me, 48
  %is.within = icmp ne i64 %depth, 0
  br i1 %is.within, label %within, label %finish
within:
  %less = sub i64 %me, 281474976710656
  %set.less = call i32 @pthread_setspecific(i32 %key, i64 %less)
  ret void
finish:
  %cleared = call i32 @pthread_setspecific(i32 %key, i64 0)
  %others = sub i64 %me, 1
  call void @nnc.finish(ptr @nnc.team.part, ptr @nnc.team, i64 %others, i64 1, i64 0)
  ret void
}

define void @nnc_team_barrier() nounwind {
  %key = load i32, ptr @nnc_team_key
  %me = call i64 @pthread_getspecific(i32 %key)
  %is.outside = icmp sle i64 %me, 0
  br i1 %is.outside, label %openmp, label %mine
openmp:
  call void @GOMP_barrier()
  ret void
mine:
  %depth = lshr i64 %me, 48
  %is.within = icmp ne i64 %depth, 0
  br i1 %is.within, label %pass, label %meet
meet:
  %threads = and i64 %me, 16777215
  %threads.i32 = trunc i64 %threads to i32
  %round = load atomic i32, ptr @nnc.team.round acquire, align 4
  %before = atomicrmw add ptr @nnc.team.met, i32 1 acq_rel
  %here = add i32 %before, 1
  %is.last = icmp eq i32 %here, %threads.i32
  br i1 %is.last, label %open, label %wait
open:
  store atomic i32 0, ptr @nnc.team.met monotonic, align 4
  %opened = atomicrmw add ptr @nnc.team.round, i32 1 seq_cst
  %asleep = load atomic i32, ptr @nnc.team.asleep seq_cst, align 4
  %some.asleep = icmp ne i32 %asleep, 0
  br i1 %some.asleep, label %wake, label %pass
wake:
  call void @nnc.rouse(ptr @nnc.team.round, ptr @nnc.met, i64 2147483647)
  ret void
wait:
  %pauses = phi i64 [ 0, %meet ], [ %pauses.now, %spin ], [ 0, %sleep ]
  %now = load atomic i32, ptr @nnc.team.round acquire, align 4
  %is.open = icmp ne i32 %now, %round
  br i1 %is.open, label %pass, label %wait.more
wait.more:
  %soon = icmp ult i64 %pauses, <CALLER_PAUSES>
  br i1 %soon, label %spin, label %sleep
spin:
  <PAUSE>
  %pauses.now = add i64 %pauses, 1
  br label %wait
sleep:
  %slept.before = atomicrmw add ptr @nnc.team.asleep, i32 1 seq_cst
  call void @nnc.rest(ptr @nnc.team.round, ptr @nnc.met, i32 %round)
  %slept.after = atomicrmw sub ptr @nnc.team.asleep, i32 1 monotonic
  br label %wait
pass:
  ret void
}

define i32 @nnc_team_most() nounwind {
  %allowed = load atomic i32, ptr @nnc_num_threads monotonic, align 4
  ret i32 %allowed
}
""" + "".join(_ANSWERS)
