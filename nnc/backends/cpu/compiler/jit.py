"""The compiler of native kernels and programs: texts are compiled once, kept on disk, and loaded while they are referenced.

`compiler()` is the one of this process.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnc.backends.cpu.compiler.engine import Engine, LoadedObjects
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.cpu.compiler.preparation import PREPARE
from nnc.backends.cpu.compiler.runtime import Runtime
from nnc.backends.cpu.threads.team import STANDINS
from nnc.backends.cpu.threads.threads import threads
from nnc.backends.llvm.llvm import CALLS, INLINED, KERNEL, LIGHT, Recipe
from nnc.base.fork import new_lock
from nnc.base.later import later
from nnc.base.options import Options, chosen_cpu
from nnc.lower.kernels.native import ALIGNED, DATA, FLAGS, Native

if TYPE_CHECKING:
    from nnc.backends.cpu.compiler.prefetch import Prefetcher

ENTRY = "ENTRY"
_make_prefetcher = later(f"{__package__}.prefetch", "Prefetcher")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A compiled function: it can be called at `address` while this object lives, which holds the functions that it calls."""

    address: int
    library: LoadedObjects
    held: Any
    symbols: Mapping[str, int] | None = None  # of a program


class Jit:
    """Implements `nnc.lower.kernels.native.Compiler` with LLVM.

    Kernels with the same text are one function, compiled once while it is referenced; `objects` keeps compiled code in files.
    """

    def __init__(self, engine: Engine, objects: Objects, runtime: Runtime) -> None:
        self.engine, self.objects, self.runtime = engine, objects, runtime
        self._lock, self._starting = new_lock(), new_lock()
        self._known: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()
        self._entries: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()
        self._symbols = runtime.symbols()
        self._callers: dict[tuple[int, bool, int], tuple[Loaded, Callable[..., int]]] = {}
        self._runtime_code: LoadedObjects | None = None
        self._failure: Exception | None = None
        objects.begin(runtime.text, CALLS)

    @property
    def failure(self) -> Exception | None:
        """The reason why nothing can be compiled or loaded; None where it can. The first text, the runtime's, is compiled to find
        out.
        """
        with self._starting:
            if self._runtime_code is None and self._failure is None:
                try:
                    self._runtime_code = self._load_runtime()
                except (ImportError, OSError, RuntimeError) as error:
                    self._failure = error
            return self._failure

    def works(self) -> bool:
        """Whether this compiler works, which may have to wait for LLVM."""
        return self.failure is None

    def _load_runtime(self) -> LoadedObjects:
        runtime = self.runtime
        code = self.engine.link([self.objects.compile(runtime.text, CALLS)], self._symbols, runtime.exports)
        self._symbols |= code.addresses
        if runtime.pool is not None:
            runtime.pool.start(code)
        return code

    def _loaded_runtime(self) -> LoadedObjects:
        """Returns the functions that all texts may call.

        Raises:
            Exception: the compiler does not work; the error is the reason.
        """
        if self.failure is not None:
            raise self.failure
        assert self._runtime_code is not None
        return self._runtime_code

    @property
    def standins(self) -> Mapping[str, int]:
        """Addresses of functions that replace OpenMP's functions of these names by nnc's threads, where `runtime.has_team`."""
        addresses = self._loaded_runtime().addresses
        return {name: addresses[standin] for name, standin in STANDINS.items()}

    def prefetch(self) -> Prefetcher:
        """Makes an object that prefetches memory while a program is made."""
        memory = self.runtime.machine.memory
        find = lambda: self._loaded_runtime().addresses[PREPARE] if self.works() else None
        made: Prefetcher = _make_prefetcher(find, memory)
        return made

    def expect(self, wanted: Native | str | None = None) -> None:
        """Announces a kernel, a program's text, or a text not printed yet: another process, where there is one, begins to
        compile.
        """
        if wanted is None:
            self.engine.expect()
        elif isinstance(wanted, str):
            if wanted not in self._entries:
                self.objects.begin(wanted, recipe_of_program(wanted))
        elif wanted.name not in self._known:
            for called in wanted.calls:
                self.expect(called)
            self.objects.begin(wanted.code, recipe_of(wanted))

    def load(self, natives: Sequence[Native]) -> list[Loaded]:
        """Returns the functions of kernels; kernels that are not known yet are compiled together, in parallel.

        Raises:
            InternalError: LLVM refuses a text, or the text needs an unknown symbol.
        """
        self._loaded_runtime()
        with self._lock:
            held = self._load(natives)
        return [held[native.name] for native in natives]

    def _load(self, natives: Sequence[Native]) -> dict[str, Loaded]:
        """Loads the functions of kernels by their names, callees first."""
        held = {native.name: found for native in natives if (found := self._known.get(native.name)) is not None}
        # Asked once, since other threads may free kernels.
        missing = [native for native in natives if native.name not in held]
        called = [callee for caller in missing for callee in caller.calls]
        below = self._load(called) if called else {}
        held |= {native.name: below[native.name] for native in missing if native.name in below}
        new = {native.name: native for native in missing if native.name not in held}
        code: dict[str, bytes] = {}
        for recipe in (KERNEL, LIGHT):
            some = [native for native in new.values() if recipe_of(native) == recipe]
            texts = [native.code for native in some]
            code |= zip([native.name for native in some], self.objects.compile_all(texts, recipe), strict=True)
        for batch in _batches(list(new.values())):
            symbols = self._symbols | {name: at for native in batch for name, at in native.symbols.items()}
            symbols |= {name: function.address for name, function in below.items()}
            names = [native.name for native in batch]
            library = self.engine.link([code[name] for name in names], symbols, names)
            for native in batch:
                holds = self, [below[callee.name] for callee in native.calls]
                held[native.name] = self._known[native.name] = Loaded(library.addresses[native.name], library, holds)
        return held

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Loaded:
        """Returns the function `@ENTRY` of a program, loaded once while it is referenced; kernels in its own text, marked
        `alwaysinline`, are inlined.

        Raises:
            InternalError: LLVM refuses the text, or the text needs an unknown symbol.
        """
        self._loaded_runtime()
        found = self._entries.get(text)
        if found is None or found.symbols != symbols:
            code = self.objects.compile(text, recipe_of_program(text))
            library = self.engine.link([code], {**self._symbols, **symbols}, [ENTRY])
            found = self._entries[text] = Loaded(library.addresses[ENTRY], library, (self, held), symbols)
        return found

    def caller(self, arrays: int, stateful: bool, numbers: int) -> Callable[..., int]:
        """Calls kernels on NumPy arrays: `call(address, state's address or 0, *arrays, *numbers)` gives the status. It is 1 where
        an array's elements lie at addresses that are no multiples of their size.

        Compiled code reads where an array's elements lie out of the array object, which costs ten times less than asking for it.
        """
        key = arrays, stateful, numbers
        found = self._callers.get(key)
        if found is None:
            (function,) = self.load([Native(_caller_text(arrays, stateful, numbers))])
            parameters = [ctypes.c_void_p] * 2 + [ctypes.py_object] * arrays + [ctypes.c_int64] * numbers
            found = self._callers[key] = function, ctypes.CFUNCTYPE(ctypes.c_int64, *parameters)(function.address)
        return found[1]


def recipe_of(native: Native) -> Recipe:
    """Returns the settings to compile a kernel by."""
    return LIGHT if native.light else KERNEL


def recipe_of_program(program: str) -> Recipe:
    """Returns the settings to compile a program's text by."""
    return INLINED if "alwaysinline" in program else CALLS


def _caller_text(arrays: int, stateful: bool, numbers: int) -> str:
    """Returns a function that takes a kernel, its state, NumPy array objects and numbers, and calls the kernel on the arrays'
    elements. Libraries move elements to the next multiple of a vector's size one by one, and fault where there is none.
    """
    objects, sizes = [f"%array{i}" for i in range(arrays)], [f"i64 %number{i}" for i in range(numbers)]
    parameters = ["ptr %kernel", "ptr %state", *(f"ptr {name}" for name in objects), *sizes]
    given = [*(f"ptr %data{i}" for i in range(arrays)), *(["ptr %state"] if stateful else []), *sizes]
    reads = [
        f"  %at{i} = getelementptr i8, ptr {name}, i64 {DATA}\n  %data{i} = load ptr, ptr %at{i}\n"
        f"  %flagsat{i} = getelementptr i8, ptr {name}, i64 {FLAGS}\n  %flags{i} = load i32, ptr %flagsat{i}\n"
        f"  %common{i + 1} = and i32 %common{i}, %flags{i}"
        for i, name in enumerate(objects)
    ]
    return "\n".join([
        f"define i64 @KERNEL({', '.join(parameters)}) {{",
        f"  %common0 = add i32 {ALIGNED}, 0",
        *reads,
        f"  %aligned = icmp eq i32 %common{arrays}, {ALIGNED}",
        "  br i1 %aligned, label %run, label %refuse",
        "run:",
        f"  %status = call i64 %kernel({', '.join(given)})",
        "  ret i64 %status",
        "refuse:",
        "  ret i64 1",
        "}\n",
    ])  # fmt: skip


def _batches(natives: Sequence[Native]) -> list[list[Native]]:
    """Groups kernels that can be loaded as one library: kernels that agree on the addresses of their symbols."""
    batches: list[tuple[list[Native], dict[str, int]]] = []
    for native in natives:
        for batch, symbols in batches:
            if all(symbols.get(name, address) == address for name, address in native.symbols.items()):
                batch.append(native)
                symbols |= native.symbols
                break
        else:
            batches.append(([native], dict(native.symbols)))
    return [batch for batch, _ in batches]


_STARTING = new_lock()


def compiler() -> Jit | None:
    """Returns the compiler of this process; None where LLVM cannot be loaded (`why_absent` tells the reason)."""
    found = expected_compiler()
    return found if found is not None and found.works() else None


def expected_compiler() -> Jit | None:
    """Returns the compiler of this process, which need not be ready: where another process compiles, it loads LLVM meanwhile.
    Whether it `works()` can be asked later; None where it is known that there is none.
    """
    found = _start()
    return found if isinstance(found, Jit) else None


def why_absent() -> str | None:
    """Returns the reason for the absence of a compiler; None where there is one."""
    found = _start()
    error = found.failure if isinstance(found, Jit) else found
    return None if error is None else f"{type(error).__name__}: {error}"


def _start() -> Jit | Exception:
    with _STARTING:
        return _start_once()


@functools.cache
def _start_once() -> Jit | Exception:
    found = threads()
    runtime = Runtime(found.openmp, found.count, found.pool)
    try:
        engine = Engine(chosen_cpu())
        return Jit(engine, Objects(engine, Options.from_environment().cache_folder), runtime)
    except (ImportError, OSError, RuntimeError) as error:
        return error
