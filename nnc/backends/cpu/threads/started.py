"""The pool of an exported function, in whose module it lives: two functions start its workers as POSIX threads, and end them."""

from __future__ import annotations

from nnc.backends.cpu.threads.pool import pool_text
from nnc.base.target import Threads

_EXTERNAL = "@nnc_{} = external global i32"
_TEXT = """
@nnc.started = internal global i32 0
@nnc.threads = internal global [<WORKERS> x ptr] zeroinitializer
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)

define internal ptr @nnc.thread(ptr %number) nounwind {
  %number.i64 = ptrtoint ptr %number to i64
  %number.i32 = trunc i64 %number.i64 to i32
  call void @nnc_work(i32 %number.i32)
  ret ptr null
}

; The number of the error of the first thread that the system does not give; 0 where all are there.
define i32 @<NAME>_start() nounwind {
  store atomic i32 <THREADS>, ptr @nnc_num_threads monotonic, align 4
  br label %look
look:
  %started = load i32, ptr @nnc.started
  %is.all = icmp eq i32 %started, <WORKERS>
  br i1 %is.all, label %done, label %one
one:
  %place = getelementptr [<WORKERS> x ptr], ptr @nnc.threads, i64 0, i32 %started
  %next = add i32 %started, 1
  %number.i64 = zext i32 %next to i64
  %number = inttoptr i64 %number.i64 to ptr
  %error = call i32 @pthread_create(ptr %place, ptr null, ptr @nnc.thread, ptr %number)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %undo, label %count
count:
  store i32 %next, ptr @nnc.started
  br label %look
undo:
  call void @<NAME>_stop()
  ret i32 %error
done:
  ret i32 0
}

define void @<NAME>_stop() nounwind {
  store atomic i32 1, ptr @nnc_num_threads seq_cst, align 4
  call void @nnc_wake()
  br label %look
look:
  %started = load i32, ptr @nnc.started
  %is.none = icmp eq i32 %started, 0
  br i1 %is.none, label %done, label %one
one:
  %last = sub i32 %started, 1
  %place = getelementptr [<WORKERS> x ptr], ptr @nnc.threads, i64 0, i32 %last
  %thread = load ptr, ptr %place
  %joined = call i32 @pthread_join(ptr %thread, ptr null)
  store i32 %last, ptr @nnc.started
  br label %look
done:
  ret void
}
"""


def started_text(name: str, count: int, threads: Threads, architecture: str) -> str:
    """Returns the pool of `count` threads, the caller's among them, and `NAME_start` and `NAME_stop`, as LLVM's text for Linux.

    Args:
        name: the exported function.
        threads: the figures of the machine.
        architecture: the processor family.
    """
    text = pool_text(threads, architecture)
    for variable, first in (("num_threads", 1), ("workers", 0)):
        external = _EXTERNAL.format(variable)
        text = text.replace(external, external.replace("external global i32", f"internal global i32 {first}"))
    own = {"<NAME>": name, "<THREADS>": str(count), "<WORKERS>": str(count - 1)}
    more = _TEXT
    for mark, value in own.items():
        more = more.replace(mark, value)
    return text + more
