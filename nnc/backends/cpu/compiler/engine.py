"""Compiles text to object files, and loads object files as functions.

Where the system allows it, LLVM is not loaded in this process: another one compiles (`llvm_process.py`), and object files are
loaded without LLVM (`elf.py`). Elsewhere, and with NNC_LOADER=llvm, LLVM does both in this process.
"""

from __future__ import annotations

import platform
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from nnc.backends.cpu.compiler import elf
from nnc.backends.cpu.compiler.relocations import UnknownFormError
from nnc.backends.llvm.llvm import KERNEL, Llvm, Recipe
from nnc.backends.llvm.llvm_process import Answer, GoneError, Helper, find_command
from nnc.backends.llvm.llvmlite_library import (
    find_library,
    llvmlite_version,
    make_builder,
    make_loader,
    names_in,
)
from nnc.base.fork import fork_waits, new_lock
from nnc.base.machine import usable_threads
from nnc.base.options import chosen_loader
from nnc.errors import InternalError

_LIBRARIES = 64  # in one loader of LLVM, which keeps 8 KB of each that was unloaded; then there is a new one
_LINES_SHOWN = 12
_THREADS = 8  # that compile at once, at most
_CPUINFO = Path("/proc/cpuinfo")
_FACTS_BYTES = 1 << 14  # in which that file describes the first processor
_INSTRUCTIONS = (
    "flags",
    "Features",
)  # lines about them on x86-64 and on aarch64, and those about the kind of processor
_FACTS = (*_INSTRUCTIONS, "vendor_id", "cpu family", "model", "stepping", "CPU ")


class Machine(NamedTuple):
    """The target of code: LLVM's names for this processor, and LLVM's own version."""

    triple: str
    cpu: str
    features: str
    llvm: str


class LoadedObjects(NamedTuple):
    """Loaded object files. They are unloaded when `memory` is freed."""

    addresses: Mapping[str, int]
    memory: Any


class Engine:
    """Compiles and loads code.

    Args:
        cpu: LLVM's name of the processor that code is made for; None: this processor.
        apart: whether another process may compile, where LLVM is not needed to load code.

    Raises:
        ImportError, OSError, RuntimeError: LLVM cannot be loaded, or does not know this machine.
    """

    def __init__(self, cpu: str | None = None, *, apart: bool = True) -> None:
        self._loads = elf.is_supported() and chosen_loader() == "own"
        self.threads, self._cpu, self._version = min(usable_threads(), _THREADS), cpu, llvmlite_version()
        self._library = find_library()
        command = find_command(self._library, self.threads, cpu) if apart and self._loads else None
        self._helper = Helper(command) if command is not None else None
        self._locked = new_lock()
        self._known_llvm: Llvm | None = None
        self._loader: Any = None
        self._loaded = 0
        if not self._loads:
            self._load_llvm()  # LLVM is needed in any case, so its absence is found out now

    def _load_llvm(self) -> Llvm:
        """Loads LLVM in this process."""
        with self._locked:
            if self._known_llvm is None:
                with fork_waits():
                    self._known_llvm = Llvm(self._library, self._cpu)
            return self._known_llvm

    @property
    def machine(self) -> Machine:
        """The target of code according to LLVM, which is loaded for it."""
        llvm = self._load_llvm()
        return Machine(llvm.triple, llvm.cpu, llvm.features, f"{llvm.version} (llvmlite {self._version})")

    @cached_property
    def made_for(self) -> Mapping[str, str]:
        """Facts on which object files depend beside text and recipe: the processor, and the compiler."""
        facts = (self._cpu or processor_facts()) if self._loads else ""
        if not facts:
            machine = self.machine
            return {"machine": f"{machine.triple} {machine.cpu} {machine.features}", "llvm": machine.llvm}
        return {"machine": facts, "llvm": f"llvmlite {self._version}"}

    @property
    def is_apart(self) -> bool:
        """Whether another process compiles, as far as this is known."""
        return self._helper is not None and self._helper.is_usable

    def expect(self) -> None:
        """Announces compilations: another process, where there is one, loads LLVM meanwhile."""
        if self._helper is not None:
            self._helper.start()

    def begin(self, text: str, recipe: Recipe = KERNEL) -> Callable[[], bytes]:
        """Begins to compile a module, where another process compiles; returns a function that returns the object file.

        Raises:
            Exception: `compile` failed; raised when that function is called.
        """
        answer = self._helper.compile(text, recipe) if self._helper is not None else None
        return partial(self._finish, text, recipe, answer)

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """Compiles a module to an object file. Several threads may compile at once.

        Raises:
            InternalError: LLVM refuses the text.
            ImportError, OSError, RuntimeError: LLVM cannot be loaded after all.
        """
        return self.begin(text, recipe)()

    def _finish(self, text: str, recipe: Recipe, answer: Answer | None) -> bytes:
        if answer is not None and self._helper is not None:
            if not answer.is_ours:  # it was requested before this process was forked
                return self.compile(text, recipe)
            try:
                return answer.result()
            except GoneError:
                self._helper.give_up()
            except RuntimeError as error:
                raise _refusal(text, error) from error
        llvm = self._load_llvm()
        try:
            with fork_waits():  # LLVM has locks of its own
                return llvm.compile(text, recipe)
        except RuntimeError as error:
            raise _refusal(text, error) from error

    def assembly(self, text: str, recipe: Recipe = KERNEL) -> str:
        """Returns the machine code of a module as text, for people."""
        return self._load_llvm().assembly(text, recipe)

    def link(self, objects: Sequence[bytes], symbols: Mapping[str, int], exports: Collection[str]) -> LoadedObjects:
        """Loads object files, which can use each other's symbols and those in `symbols` (addresses), and no others.

        Raises:
            InternalError: the files need an unknown symbol.
        """
        if self._loads:
            try:
                memory, addresses = elf.load(objects, symbols, exports)
                return LoadedObjects(addresses, memory)
            except elf.MissingError as error:
                raise InternalError(
                    f"nnc cannot load {', '.join(exports)}. Nobody gave: {', '.join(error.names)}"
                ) from error
            except UnknownFormError:
                pass  # LLVM knows all forms
        return self.link_by_llvm(objects, symbols, exports)

    def link_by_llvm(
        self, objects: Sequence[bytes], symbols: Mapping[str, int], exports: Collection[str]
    ) -> LoadedObjects:
        """Links, as `link` does, object files of a form that nnc does not know."""
        llvm = self._load_llvm()
        builder = make_builder()
        for image in objects:
            builder.add_object_img(image)
        for name, address in symbols.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        with self._locked:
            if self._loader is None or self._loaded == _LIBRARIES:
                self._loader, self._loaded = make_loader(llvm), 0
            self._loaded += 1
            loader, name = self._loader, f"nnc{self._loaded}"
        try:
            with fork_waits():
                tracker = builder.link(loader, name)
        except RuntimeError as error:
            missing = sorted(names_in(objects) - set(symbols) - set(exports))
            raise InternalError(
                f"LLVM cannot load {', '.join(exports)}: {error}. Nobody gave: {', '.join(missing) or 'nothing is missing'}"
            ) from error
        return LoadedObjects({name: int(tracker[name]) for name in exports}, _Tracked(tracker, loader))


class _Tracked:
    """A library that LLVM loaded: unloaded with this object, and then the loader, if it is full and holds no other library."""

    def __init__(self, tracker: Any, loader: Any) -> None:
        weakref.finalize(self, _unload, tracker, loader).atexit = False


def _unload(tracker: Any, loader: Any) -> None:
    tracker.close()
    del loader


def processor_facts(cpuinfo: Path = _CPUINFO) -> str:
    """Returns the lines of Linux's description of the processor that decide which code it runs; "" where they lack the
    instructions.
    """
    try:
        with cpuinfo.open("rb") as file:
            lines = file.read(_FACTS_BYTES).decode(errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    facts = [line for line in lines if line.startswith(_FACTS)]
    return "\n".join([platform.machine(), *facts]) if any(line.startswith(_INSTRUCTIONS) for line in facts) else ""


def _refusal(text: str, error: RuntimeError) -> InternalError:
    """Builds the error for a text that LLVM refuses."""
    return InternalError(f"LLVM does not take this text: {error}\n{_shown(text, str(error))}")


def _shown(text: str, error: str) -> str:
    """Returns the first lines of a text, and the lines around the one that LLVM's message names."""
    lines = text.splitlines()
    found = re.match(r"<string>:(\d+):", error)
    at = int(found[1]) - 3 if found else 0  # two lines of head stand before the text
    first, around = range(min(_LINES_SHOWN, len(lines))), range(max(at - 2, _LINES_SHOWN), min(at + 3, len(lines)))
    rows = [f"{i + 1:5} {lines[i]}" for i in (*first, *around)]
    return "\n".join(rows)
