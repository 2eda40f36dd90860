"""LLVM: text becomes an object file.

This file imports nothing of nnc, since it is also run by itself, as a process that compiles for others (`llvm_process.py` is their
side). LLVM takes 70 MiB, which only that process holds then, and works while Python goes on.

llvmlite calls LLVM behind one lock. What takes long (reading text, passes, code generation) works on a module that nobody else
sees, so it is called past the lock, and modules compile in several threads at once.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

REQUEST, ANSWER = (
    struct.Struct("<QII"),
    struct.Struct("<Q?I"),
)  # number, bytes of the recipe and the text; number, success, bytes


class Recipe(NamedTuple):
    """How a module is compiled: the passes, by llvmlite's names, or all of LLVM's first level; then code generation, which tries
    hard (`level` 0 to 3)."""  # no dataclass: to load those would take a fifth of the time in which the process starts

    passes: tuple[str, ...]
    level: int
    first_level: bool = False

    def encode(self) -> str:
        """A form for keys and pipes."""
        return f"{self.level} {int(self.first_level)} {' '.join(self.passes)}".rstrip()

    @classmethod
    def decode(cls, text: str) -> Recipe:
        """What was encoded."""
        level, first_level, *passes = text.split(" ")
        return cls(tuple(passes), int(level), first_level == "1")


# Kernels arrive vectorised, with all that is shared and hoisted in its place (`codegen/writer.py`): 3 ms for one of two loops and
# forty operations, 1 ms of it for any module and 0.4 ms for any function. Level 1 takes as long as 2, level 0 a third, and its
# loops spill to the stack.
KERNEL = Recipe(("sroa", "simplify_cfg"), 2)
# Kernels that are loops around calls of others, for a fifth of the time that the passes of code generation would take.
LIGHT = Recipe(("sroa",), 0)
# Programs with loops that take kernels in: what a round leaves for the next one stays in registers, so a short loop is 2.5 times as
# fast as with the passes above, for 4 ms.
INLINED = Recipe((), 2, first_level=True)
# Programs that only call, most of it by constants, and hold the shortest kernels; and the runtime. Nothing takes long there, and
# this takes a fifth of what the others do.
CALLS = Recipe((), 0)

# Passes of code generation that find nothing in such kernels, or what makes no difference: a sixth of LLVM's time. Loops count as
# they are written, instructions stand in a good order, and processors look far ahead by themselves. These hold for a whole process,
# so they are set only where nobody else uses LLVM. A name that LLVM does not know is passed over.
_WITHOUT = (
    "-post-RA-scheduler=0", "-enable-misched=0", "-disable-lsr", "-disable-machine-sink", "-disable-postra-machine-sink",
    "-disable-postra-machine-licm", "-disable-constant-hoisting", "-disable-partial-libcall-inlining", "-enable-shrink-wrap=0",
    "-disable-early-ifcvt", "-x86-cmov-converter=0", "-disable-x86-lea-opt", "-disable-x86-domain-reassignment",
    "-fixup-byte-word-insts=0", "-disable-mergeicmps", "-disable-replace-with-vec-lib", "-lower-interleaved-accesses=0",
    "-disable-copyprop",
)  # fmt: skip


class Llvm:
    """LLVM in this process. `cpu` is the processor that code is made for, by LLVM's name; None: this one.

    Raises:   ImportError, OSError, RuntimeError: LLVM cannot be loaded, or does not know this machine.
    """

    def __init__(self, cpu: str | None = None) -> None:
        # This takes 60 to 150 ms, so it is done only where something is compiled.
        self.binding: Any = importlib.import_module("llvmlite.binding")
        self.binding.initialize_native_target()
        self.binding.initialize_native_asmprinter()
        self.triple = str(self.binding.get_process_triple())
        self.cpu = cpu or str(self.binding.get_host_cpu_name())
        self.features = "" if cpu else str(self.binding.get_host_cpu_features().flatten())
        self._target = self.binding.Target.from_triple(self.triple)
        self._calls = _Calls(self.binding)
        self._tools = _OwnTools()

    @property
    def version(self) -> str:
        """LLVM's own."""
        return ".".join(map(str, self.binding.llvm_version_info))

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """The object file of a module. Several threads may compile at once.

        Raises:   RuntimeError: LLVM does not take the text.
        """
        tools = self._own_tools(recipe)
        module = self._calls.parse(tools.head + text, self.binding.create_context())
        self._calls.run(tools.passes(), module, tools.builder)
        return self._calls.emit(tools.machine, module)

    def assembly(self, text: str, recipe: Recipe = KERNEL) -> str:
        """The machine code of a module as text, for people."""
        tools = self._own_tools(recipe)
        module = self.binding.parse_assembly(tools.head + text, self.binding.create_context())
        tools.passes().run(module, tools.builder)
        return str(tools.machine.emit_assembly(module))

    def make_loader(self) -> Any:
        """What loads object files, and keeps them apart from all others."""
        machine = self._target_machine(KERNEL.level)
        return self.binding.create_lljit_compiler(machine, use_jit_link=sys.platform != "win32", suppress_errors=True)

    def names_in(self, objects: Iterable[bytes]) -> set[str]:
        """The names of functions and variables that object files (of the form ELF) define or need."""
        tables = [
            section.data() for image in objects for section in self.binding.ObjectFileRef.from_data(image).sections()
            if section.name() == b".strtab"
        ]  # fmt: skip
        names = {name.decode() for table in tables for name in table.split(b"\0")}
        return {name for name in names if name and not name.startswith((".", "<"))}

    def _target_machine(self, level: int) -> Any:
        # Position-independent code of the small model reaches constants relative to the instruction, and all else through tables.
        return self._target.create_target_machine(self.cpu, self.features, level, reloc="pic", codemodel="small")

    def _own_tools(self, recipe: Recipe) -> _Tools:
        """This thread's tools for a recipe."""
        own = self._tools.by_recipe
        if recipe not in own:
            own[recipe] = _Tools(self.binding, self._target_machine(recipe.level), self.triple, recipe)
        return own[recipe]


class _Tools:
    """What one thread compiles with: a description of the machine, and the passes."""

    def __init__(self, binding: Any, machine: Any, triple: str, recipe: Recipe) -> None:
        self.machine = machine
        self.head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        self._options = binding.create_pipeline_tuning_options(1)
        self._options.loop_vectorization = self._options.slp_vectorization = self._options.loop_unrolling = False
        self.builder = binding.create_pass_builder(machine, self._options)
        self._new_manager = binding.create_new_module_pass_manager
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

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        library = ctypes.CDLL(binding.ffi.lib._name)
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
        return self._binding.ModuleRef(ctypes.cast(found, self._binding.ffi.LLVMModuleRef), context)

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


# -- a process that compiles for others --------------------------------------------------------------------------------


def serve(requests: BinaryIO, answers: BinaryIO, threads: int, cpu: str | None) -> None:
    """Compiles what is asked for until there are no more requests, the longest text first, so that no thread is left alone with one
    in the end. An empty answer to number 0 says that LLVM is there."""
    llvm = Llvm(cpu)
    waiting: queue.PriorityQueue[tuple[int, int, Recipe, str]] = queue.PriorityQueue()
    writing = threading.Lock()

    def answer(number: int, success: bool, content: bytes) -> None:
        try:
            with writing:
                answers.write(ANSWER.pack(number, success, len(content)) + content)
                answers.flush()
        except OSError:
            os._exit(0)  # whoever asked is gone

    def work() -> None:
        while True:
            _, number, recipe, text = waiting.get()
            try:
                success, content = True, llvm.compile(text, recipe)
            except Exception as error:  # each request is answered, or somebody would wait for ever
                success, content = False, str(error).encode()
            answer(number, success, content)

    answer(0, True, b"")
    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        number, of_recipe, of_text = REQUEST.unpack(head)
        recipe, text = requests.read(of_recipe).decode(), requests.read(of_text).decode()
        waiting.put((-len(text), number, Recipe.decode(recipe), text))


def main() -> None:
    """FOLDER THREADS [CPU]: serves on standard input and output; FOLDER is where llvmlite is."""
    folder, threads, *cpu = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process that it serves, and not before
    sys.path.append(folder)
    with os.fdopen(os.dup(1), "wb") as answers, os.fdopen(0, "rb", closefd=False) as requests:
        os.dup2(2, 1)  # nobody else writes between answers
        binding = importlib.import_module("llvmlite.binding")
        for option in _WITHOUT:
            binding.set_option("", option)
        serve(requests, answers, int(threads), cpu[0] if cpu else None)
        os._exit(0)  # nobody waits for what is still being compiled


if __name__ == "__main__":
    main()
