"""Primitives of oneDNN, made many at a time.

To make one, the library writes machine code into new memory, for which it waits for the system. It needs nothing of Python, so
the primitives of a program are made by a thread, in a compiled loop, while the rest of the program is loaded.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np

from nnc.backends.native_runs import cpu_compiler
from nnc.backends.onednn.library import Owned, PrimitiveDesc, check, loaded
from nnc.base import dtypes
from nnc.base.fork import fork_waits, new_lock
from nnc.base.machine import usable_threads
from nnc.errors import BackendError
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Function, Native
from nnc.run.arguments import pointer, word, word_at

_CREATE = "dnnl_primitive_create"

_ROW = 3  # words: a description, the primitive made of it, the library's answer


class _Made(Owned):
    __slots__ = ()
    kind = "primitive"


class Primitive:
    """An operation that is ready to run, from any number of threads at once. It is made when its handle is first asked for, unless
    that was begun before.
    """

    __slots__ = ("__weakref__", "batch", "desc", "made", "status")

    def __init__(self, desc: PrimitiveDesc) -> None:
        self.desc, self.status = desc, 0
        self.made: _Made | None = None
        self.batch: _WantedPrimitives | None = None
        _WANTED.append(weakref.ref(self))

    @staticmethod
    def of(desc: PrimitiveDesc) -> Primitive:
        """One for all calls of a description, which lives as long as one of them."""
        found = _KNOWN.get(desc)
        if found is None:
            found = _KNOWN[desc] = Primitive(desc)
        return found

    @property
    def handle(self) -> int:
        """Returns the library's handle of the primitive.

        Raises:
            BackendError: the library refuses to make it.
        """
        if self.made is None:
            with _TAKING:
                batch = self.batch or _WantedPrimitives()
            batch.make()
            check(self.status, _CREATE)
        if self.made is None:
            raise BackendError("oneDNN made no primitive")
        return self.made.handle


_KNOWN: weakref.WeakValueDictionary[PrimitiveDesc, Primitive] = weakref.WeakValueDictionary()
_WANTED: deque[weakref.ref[Primitive]] = deque()  # primitives of no batch
_TAKING = new_lock()


class _WantedPrimitives:
    """The primitives that are wanted so far; they are made together."""

    def __init__(self) -> None:
        found = [_WANTED.popleft()() for _ in range(len(_WANTED))]
        self._primitives = [primitive for primitive in found if primitive is not None]
        for primitive in self._primitives:
            primitive.batch = self
        self._making = new_lock()

    def make(self) -> None:
        """Makes them, or waits for the thread that does."""
        with fork_waits(), self._making:  # the library has locks of its own
            if not self._primitives:
                return  # another thread made them
            rows = np.zeros((len(self._primitives), _ROW), np.int64)
            rows[:, 0] = [primitive.desc.handle for primitive in self._primitives]
            _, create_all = _loop()
            create_all(rows.ctypes.data, len(rows))
            for primitive, (_, handle, status) in zip(self._primitives, rows.tolist(), strict=True):
                primitive.status = status
                primitive.made = _Made(handle) if status == 0 else None
                primitive.batch = None  # last, since others look meanwhile
            self._primitives.clear()


def begin_primitives() -> None:
    """Lets a thread make all primitives that there are by now; on one core the caller makes them when it needs one."""
    if usable_threads() == 1:
        return
    with _TAKING:
        batch = _WantedPrimitives() if _WANTED else None
    if batch is not None:
        _loop()
        has_begun = threading.Lock()
        has_begun.acquire()
        _thread.start_new_thread(_make_beside, (batch, has_begun))
        has_begun.acquire()  # else Python may let the thread wait for 5 ms


def _make_beside(batch: _WantedPrimitives, has_begun: threading.Lock) -> None:
    has_begun.release()
    batch.make()


@cache
def _loop() -> tuple[Function, Callable[[int, int], int]]:
    """Returns the compiled loop (rows, count) that makes a primitive for each row, and how it is called."""
    jit = cpu_compiler()
    if jit is None:
        raise BackendError("oneDNN needs a compiler")
    code = Code("KERNEL", (("ptr", "rows"), ("i64", "count")))
    code.declare(f"declare i32 @{_CREATE}(ptr, ptr)")
    with code.loop(0, Value("%count", dtypes.int64)) as i:
        row = word_at(code, "%rows", code.mul(i, code.integer(_ROW)))
        desc = pointer(code, word(code, row, 0))
        status = Value(code.let(f"call i32 @{_CREATE}(ptr {code.offset(row, 8)}, ptr {desc})"), dtypes.int32)
        code.store(code.offset(row, 16), code.convert(status, dtypes.int64))
    code.ret(code.integer(0))
    text = "\n".join([*sorted(code.declarations), code.text()])
    (found,) = jit.load([Native(text, {_CREATE: loaded().address(_CREATE)})])
    return found, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(found.address)
