"""LLVM: text becomes an object file in memory, and object files become functions that can be called.

llvmlite calls LLVM behind one lock. What takes long (reading text, passes, code generation) works on a module that nobody else
sees, so it is called past the lock, and modules compile in several threads at once.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnc.errors import InternalError


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a module is compiled: the passes, by llvmlite's names, or all of LLVM's first level; then code generation, which tries
    hard (`level` 0 to 3)."""

    passes: tuple[str, ...]
    level: int
    first_level: bool = False


# Kernels arrive vectorised and in good order, and code generation hoists and shares what pays: 4 ms for one of two loops and forty
# operations, 0.8 ms of it for any module. Level 1 takes as long as 2, level 0 a third, and its loops spill to the stack.
KERNEL = Recipe(("sroa", "simplify_cfg", "instruction_combine"), 2)
# Programs with loops that take kernels in: what a round leaves for the next one stays in registers, so a short loop is 2.5 times as
# fast as with the passes above, for 4 ms.
INLINED = Recipe((), 2, first_level=True)
# Programs that only call: 30 µs for each call, a fifth of what the others take.
CALLS = Recipe((), 0)
_LIBRARIES = 64  # in one loader, which keeps 8 KB of each that was unloaded; then there is a new one
_LINES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Machine:
    """For what code is made: LLVM's names for this processor, and LLVM's own version."""

    triple: str
    cpu: str
    features: str
    llvm: str


class Library:
    """Loaded object files. They are unloaded with this object."""

    def __init__(self, tracker: Any, loader: Any, exports: Collection[str]) -> None:
        self.addresses: Mapping[str, int] = {name: int(tracker[name]) for name in exports}
        weakref.finalize(self, _unload, tracker, loader).atexit = False


def _unload(tracker: Any, loader: Any) -> None:
    """Unloads a library, and then the loader, if no other library is in it and no new one will be."""
    tracker.close()
    del loader


class Engine:
    """LLVM in this process. `cpu` is the processor that code is made for, by LLVM's name; None: this one.

    Raises:   ImportError, OSError, RuntimeError: LLVM cannot be loaded, or does not know this machine.
    """

    def __init__(self, cpu: str | None = None) -> None:
        # This takes 30 to 150 ms, so it is done only where something is compiled.
        self._llvm: Any = importlib.import_module("llvmlite.binding")
        self._llvm.initialize_native_target()
        self._llvm.initialize_native_asmprinter()
        versions = ".".join(map(str, self._llvm.llvm_version_info)), importlib.import_module("llvmlite").__version__
        self.machine = Machine(
            self._llvm.get_process_triple(),
            cpu or self._llvm.get_host_cpu_name(),
            "" if cpu else self._llvm.get_host_cpu_features().flatten(),
            f"{versions[0]} (llvmlite {versions[1]})",
        )
        self._target = self._llvm.Target.from_triple(self.machine.triple)
        self._calls = _Calls(self._llvm)
        self._tools = _OwnTools()
        self._loading = threading.Lock()
        self._loader, self._loaded = self._new_loader(), 0

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """The object file of a module. Several threads may compile at once.

        Raises:   InternalError: LLVM does not take the text.
        """
        tools = self._own_tools(recipe)
        context = self._llvm.create_context()
        try:
            module = self._calls.parse(tools.head + text, context)
            self._calls.run(tools.passes(), module, tools.builder)
            return self._calls.emit(tools.machine, module)
        except RuntimeError as error:
            raise InternalError(f"LLVM does not take this text: {error}\n{_shown(text, str(error))}") from error

    def link(self, objects: Sequence[bytes], symbols: Mapping[str, int], exports: Collection[str]) -> Library:
        """Loads object files, which see each other and `symbols` (addresses), and nothing else.

        Raises:   InternalError: they need a symbol that there is not.
        """
        builder = self._llvm.JITLibraryBuilder()
        for image in objects:
            builder.add_object_img(image)
        for name, address in symbols.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        with self._loading:
            if self._loaded == _LIBRARIES:
                self._loader, self._loaded = self._new_loader(), 0
            self._loaded += 1
            loader, name = self._loader, f"nnc{self._loaded}"
        try:
            return Library(builder.link(loader, name), loader, exports)
        except RuntimeError as error:
            missing = sorted(self._names_in(objects) - set(symbols) - set(exports))
            raise InternalError(
                f"LLVM cannot load {', '.join(exports)}: {error}. Nobody gave: {', '.join(missing) or 'nothing is missing'}"
            ) from error

    def assembly(self, text: str, recipe: Recipe = KERNEL) -> str:
        """The machine code of a module as text, for people."""
        tools = self._own_tools(recipe)
        module = self._llvm.parse_assembly(tools.head + text, self._llvm.create_context())
        tools.passes().run(module, tools.builder)
        return str(tools.machine.emit_assembly(module))

    def _new_loader(self) -> Any:
        return self._llvm.create_lljit_compiler(
            self._target_machine(KERNEL.level), use_jit_link=sys.platform != "win32", suppress_errors=True
        )

    def _names_in(self, objects: Sequence[bytes]) -> set[str]:
        """The names of functions and variables that object files (of the form ELF) define or need."""
        tables = [
            section.data() for image in objects for section in self._llvm.ObjectFileRef.from_data(image).sections()
            if section.name() == b".strtab"
        ]  # fmt: skip
        names = {name.decode() for table in tables for name in table.split(b"\0")}
        return {name for name in names if name and not name.startswith((".", "<"))}

    def _target_machine(self, level: int) -> Any:
        # Position-independent code of the small model reaches constants relative to the instruction, and all else through tables.
        return self._target.create_target_machine(
            self.machine.cpu, self.machine.features, level, reloc="pic", codemodel="small"
        )

    def _own_tools(self, recipe: Recipe) -> _Tools:
        """This thread's tools for a recipe."""
        own = self._tools.by_recipe
        if recipe not in own:
            own[recipe] = _Tools(self._llvm, self._target_machine(recipe.level), self.machine.triple, recipe)
        return own[recipe]


class _Tools:
    """What one thread compiles with: a description of the machine, and the passes."""

    def __init__(self, llvm: Any, machine: Any, triple: str, recipe: Recipe) -> None:
        self.machine = machine
        self.head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        self._options = llvm.create_pipeline_tuning_options(1)
        self._options.loop_vectorization = self._options.slp_vectorization = self._options.loop_unrolling = False
        self.builder = llvm.create_pass_builder(machine, self._options)
        self._new_manager = llvm.create_new_module_pass_manager
        self._recipe = recipe

    def passes(self) -> Any:
        """The passes of the recipe, for one module: those of LLVM's levels do not run twice."""
        passes = self.builder.getModulePassManager() if self._recipe.first_level else self._new_manager()
        for name in self._recipe.passes:
            getattr(passes, f"add_{name}_pass")()
        return passes


class _OwnTools(threading.local):
    """The tools of each thread."""

    def __init__(self) -> None:
        self.by_recipe: dict[Recipe, _Tools] = {}


class _Calls:
    """The functions that take long, as llvmlite's library has them, without llvmlite's lock around them."""

    def __init__(self, llvm: Any) -> None:
        self._llvm = llvm
        library = ctypes.CDLL(llvm.ffi.lib._name)
        pointer, message = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
        self._parse = library.LLVMPY_ParseAssembly
        self._parse.restype, self._parse.argtypes = pointer, (pointer, ctypes.c_char_p, message)
        self._run = library.LLVMPY_RunNewModulePassManager
        self._run.restype, self._run.argtypes = None, (pointer, pointer, pointer)
        self._emit = library.LLVMPY_TargetMachineEmitToMemory
        self._emit.restype, self._emit.argtypes = pointer, (pointer, pointer, ctypes.c_int, message)
        self._start = library.LLVMPY_GetBufferStart
        self._start.restype, self._start.argtypes = pointer, (pointer,)
        self._size = library.LLVMPY_GetBufferSize
        self._size.restype, self._size.argtypes = ctypes.c_size_t, (pointer,)
        self._dispose = library.LLVMPY_DisposeMemoryBuffer
        self._dispose.restype, self._dispose.argtypes = None, (pointer,)
        self._dispose_string = library.LLVMPY_DisposeString
        self._dispose_string.restype, self._dispose_string.argtypes = None, (pointer,)

    def parse(self, text: str, context: Any) -> Any:
        """The module that a text describes, in a context of its own."""
        message = ctypes.c_char_p()
        found = self._parse(_address(context), text.encode(), ctypes.byref(message))
        self._check(found, message)
        return self._llvm.ModuleRef(ctypes.cast(found, self._llvm.ffi.LLVMModuleRef), context)

    def run(self, passes: Any, module: Any, builder: Any) -> None:
        """Runs passes on a module."""
        self._run(_address(passes), _address(module), _address(builder))

    def emit(self, machine: Any, module: Any) -> bytes:
        """The object file of a module."""
        message = ctypes.c_char_p()
        found = self._emit(_address(machine), _address(module), 1, ctypes.byref(message))
        self._check(found, message)
        try:
            return ctypes.string_at(self._start(found), self._size(found))
        finally:
            self._dispose(found)

    def _check(self, found: int | None, message: ctypes.c_char_p) -> None:
        """Raises what LLVM said where it made nothing."""
        said = (message.value or b"").decode(errors="replace")
        if message.value:
            self._dispose_string(ctypes.cast(message, ctypes.c_void_p))
        if not found:
            raise RuntimeError(said.strip() or "no reason given")


def _address(reference: Any) -> int:
    """Where the thing lies that an object of llvmlite refers to."""
    return int(ctypes.cast(reference._as_parameter_, ctypes.c_void_p).value or 0)


def _shown(text: str, error: str) -> str:
    """The first lines of a text, and those around the line that LLVM complains of."""
    lines = text.splitlines()
    found = re.match(r"<string>:(\d+):", error)
    at = int(found[1]) - 3 if found else 0  # two lines of head stand before the text
    first, around = range(min(_LINES_SHOWN, len(lines))), range(max(at - 2, _LINES_SHOWN), min(at + 3, len(lines)))
    rows = [f"{i + 1:5} {lines[i]}" for i in (*first, *around)]
    return "\n".join(rows)
