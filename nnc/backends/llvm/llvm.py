"""Compiles text to object files by LLVM.

This file imports nothing of nnc, since it is also run by itself, as a process that compiles for others (`llvm_process.py` is their
side). LLVM takes 70 MiB, in that process alone, and works while Python continues. The first compilation waits for that
process, so it imports little: Python starts in 7 ms, and `threading` and `signal` would add 4 each, `typing` 10.

The library is llvmlite's, called directly: llvmlite's Python code would take 35 ms to import, and puts a lock around each call,
where modules compile in several threads at once, none of which sees the module of another.
"""

from __future__ import annotations

import ctypes
import heapq
import io
import os
import struct
import sys
from _thread import allocate_lock, start_new_thread  # the primitives below `threading`

TYPE_CHECKING = False  # as in `typing`, which type checkers read as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# number, bytes of the recipe and the text; number, success, bytes
REQUEST, ANSWER = struct.Struct("<QII"), struct.Struct("<Q?I")
GPU = "sm_"  # begins the names of NVIDIA's graphics processors
NOTICE = 0  # in place of the number of a request: its sender waits for all requests; of an answer: LLVM is loaded


# The settings to compile a module by: the level of code generation (0 to 3, which tries hard), whether all passes of LLVM's first
# level run before it, and else which, by the names of `_PASSES`.
Recipe = tuple[int, bool, tuple[str, ...]]


def encode(recipe: Recipe) -> str:
    """Returns a form of a recipe for keys and pipes."""
    level, first_level, passes = recipe
    return f"{level} {int(first_level)} {' '.join(passes)}".rstrip()


def decode(text: str) -> Recipe:
    """Returns the recipe that `encode` wrote as text."""
    level, first_level, *passes = text.split(" ")
    return int(level), first_level == "1", tuple(passes)


# Kernels arrive vectorised, with all that is shared and hoisted in its place (`lower/kernels/writer.py`): 3 ms for one of two
# loops and forty operations, 1 ms of it for any module and 0.4 ms for any function. Level 1 takes as long as 2, level 0 a third,
# and its loops spill to the stack.
KERNEL: Recipe = (2, False, ("sroa", "simplify_cfg"))
# Kernels that are loops around calls of others, for a fifth of the time that the passes of code generation would take.
LIGHT: Recipe = (0, False, ("sroa",))
# Programs with loops that take kernels in: values carried to the next iteration stay in registers, so a short loop is 2.5 times as
# fast as with the passes above, for 4 ms.
INLINED: Recipe = (2, True, ())
# Programs that consist of calls, mostly with constants, and hold the shortest kernels; and the runtime. Nothing takes long there,
# and this takes a fifth of the others' time.
CALLS: Recipe = (0, False, ())

# Passes of code generation that find nothing in such kernels, or make no difference: a fifth of LLVM's time. Loops count as
# they are written, instructions stand in a good order, and processors look far forward by themselves. These hold for a whole
# process, so they are set only where no other code uses LLVM. A name that LLVM does not know is passed over.
_WITHOUT = (
    "-post-RA-scheduler=0", "-enable-misched=0", "-disable-lsr", "-disable-machine-sink", "-disable-postra-machine-sink",
    "-disable-postra-machine-licm", "-disable-constant-hoisting", "-disable-partial-libcall-inlining", "-enable-shrink-wrap=0",
    "-disable-early-ifcvt", "-x86-cmov-converter=0", "-disable-x86-lea-opt", "-disable-x86-domain-reassignment",
    "-fixup-byte-word-insts=0", "-disable-mergeicmps", "-disable-replace-with-vec-lib", "-lower-interleaved-accesses=0",
    "-disable-copyprop", "-disable-select-optimize",
)  # fmt: skip

_PASSES = {"sroa": "LLVMPY_module_AddSROAPass", "simplify_cfg": "LLVMPY_module_AddSimplifyCFGPass"}
_ASSEMBLY, _OBJECT = 0, 1  # output of code generation
_POINTER, _STRING, _INT, _BOOL = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_bool
_MESSAGE = ctypes.POINTER(ctypes.c_char_p)  # place for a string, which the caller has to free

# The functions of llvmlite's library that are called here: types of their results and arguments.
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "LLVMPY_GetVersionInfo": (ctypes.c_uint, ()),
    "LLVMPY_SetCommandLine": (None, (_STRING, _STRING)),
    "LLVMPY_InitializeNativeTarget": (None, ()),
    "LLVMPY_InitializeNativeAsmPrinter": (None, ()),
    "LLVMPY_InitializeAllTargetInfos": (None, ()),
    "LLVMPY_InitializeAllTargets": (None, ()),
    "LLVMPY_InitializeAllTargetMCs": (None, ()),
    "LLVMPY_InitializeAllAsmPrinters": (None, ()),
    "LLVMPY_GetProcessTriple": (None, (_MESSAGE,)),
    "LLVMPY_GetHostCPUName": (None, (_MESSAGE,)),
    "LLVMPY_GetHostCPUFeatures": (_INT, (_MESSAGE,)),
    "LLVMPY_DisposeString": (None, (_POINTER,)),
    "LLVMPY_GetTargetFromTriple": (_POINTER, (_STRING, _MESSAGE)),
    # the target; triple, processor, features; level; relocation, code model; two flags, and the name of the ABI
    "LLVMPY_CreateTargetMachine": (
        _POINTER, (_POINTER, _STRING, _STRING, _STRING, _INT, _STRING, _STRING, _INT, _INT, _STRING),
    ),
    "LLVMPY_CreateTargetMachineData": (_POINTER, (_POINTER,)),
    "LLVMPY_CopyStringRepOfTargetData": (None, (_POINTER, _MESSAGE)),
    "LLVMPY_DisposeTargetData": (None, (_POINTER,)),
    "LLVMPY_CreatePipelineTuningOptions": (_POINTER, ()),
    "LLVMPY_PTOSetLoopVectorization": (None, (_POINTER, _BOOL)),
    "LLVMPY_PTOSetSLPVectorization": (None, (_POINTER, _BOOL)),
    "LLVMPY_PTOSetLoopUnrolling": (None, (_POINTER, _BOOL)),
    "LLVMPY_CreatePassBuilder": (_POINTER, (_POINTER, _POINTER)),
    "LLVMPY_CreateNewModulePassManager": (_POINTER, ()),
    "LLVMPY_buildPerModuleDefaultPipeline": (_POINTER, (_POINTER, _INT)),
    **dict.fromkeys(_PASSES.values(), (None, (_POINTER,))),
    "LLVMPY_RunNewModulePassManager": (None, (_POINTER, _POINTER, _POINTER)),
    "LLVMPY_DisposeNewModulePassManger": (None, (_POINTER,)),
    "LLVMPY_ContextCreate": (_POINTER, ()),
    "LLVMPY_ContextDispose": (None, (_POINTER,)),
    "LLVMPY_ParseAssembly": (_POINTER, (_POINTER, _STRING, _MESSAGE)),
    "LLVMPY_DisposeModule": (None, (_POINTER,)),
    "LLVMPY_TargetMachineEmitToMemory": (_POINTER, (_POINTER, _POINTER, _INT, _MESSAGE)),
    "LLVMPY_GetBufferStart": (_POINTER, (_POINTER,)),
    "LLVMPY_GetBufferSize": (ctypes.c_size_t, (_POINTER,)),
    "LLVMPY_DisposeMemoryBuffer": (None, (_POINTER,)),
}  # fmt: skip


def load_library(path: str) -> ctypes.CDLL:
    """Loads llvmlite's library, and sets the argument types of its functions.

    Raises:
        OSError: it cannot be loaded.
        ImportError: the library lacks some of these functions.
    """
    library = ctypes.CDLL(path)
    for name, (returned, taken) in SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise ImportError(f"{path} does not have the function {name}") from error
        function.restype, function.argtypes = returned, taken
    return library


class Llvm:
    """LLVM in this process. Several threads may compile at once.

    Args:
        library: the path of llvmlite's library.
        cpu: LLVM's name of the processor that code is made for; None: this processor. For a graphics processor, such as
            "sm_90", the code is PTX, a text; an intrinsic that the processor lacks ends the process.
        options: options of code generation, which hold for all users of LLVM in this process.

    Raises:
        ImportError, OSError, RuntimeError: LLVM cannot be loaded, or does not know this machine.
    """

    def __init__(self, library: str, cpu: str | None = None, options: Sequence[str] = ()) -> None:
        self._library = load_library(library)
        for option in options:
            self._library.LLVMPY_SetCommandLine(b"", option.encode())
        self._kind = _OBJECT
        if cpu is not None and cpu.startswith(GPU):
            for part in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
                getattr(self._library, f"LLVMPY_InitializeAll{part}")()
            self.triple, self._kind = "nvptx64-nvidia-cuda", _ASSEMBLY
        else:
            self._library.LLVMPY_InitializeNativeTarget()
            self._library.LLVMPY_InitializeNativeAsmPrinter()
            self.triple = self._said(self._library.LLVMPY_GetProcessTriple)
        self.cpu = cpu or self._said(self._library.LLVMPY_GetHostCPUName)
        self.features = "" if cpu else ",".join(sorted(self._said(self._library.LLVMPY_GetHostCPUFeatures).split(",")))
        self._target = self._made(self._library.LLVMPY_GetTargetFromTriple, self.triple.encode())
        self._unused: dict[int, list[_Tools]] = {}

    @property
    def version(self) -> str:
        """LLVM's own."""
        packed = int(self._library.LLVMPY_GetVersionInfo())
        return ".".join(str(packed >> bits & 255) for bits in (16, 8, 0))

    def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
        """Compiles a module to an object file; to PTX for a graphics processor.

        Raises:
            RuntimeError: LLVM refuses the text.
        """
        return self._generate(text, recipe, self._kind)

    def assembly(self, text: str, recipe: Recipe = KERNEL) -> str:
        """Returns the machine code of a module as text, for people."""
        return self._generate(text, recipe, _ASSEMBLY).decode()

    def _generate(self, text: str, recipe: Recipe, kind: int) -> bytes:
        """Returns the code generator's output for a module, which goes through the passes before."""
        library, tools = self._library, self._take_tools(recipe[0])
        context = library.LLVMPY_ContextCreate()
        try:
            module = self._made(library.LLVMPY_ParseAssembly, context, tools.head + text.encode())
            try:
                passes = self._make_passes(tools, recipe)
                library.LLVMPY_RunNewModulePassManager(passes, module, tools.builder)
                library.LLVMPY_DisposeNewModulePassManger(passes)
                written = self._made(library.LLVMPY_TargetMachineEmitToMemory, tools.machine, module, kind)
            finally:
                library.LLVMPY_DisposeModule(module)
        finally:
            library.LLVMPY_ContextDispose(context)
            self._unused[recipe[0]].append(tools)
        try:
            return ctypes.string_at(library.LLVMPY_GetBufferStart(written), library.LLVMPY_GetBufferSize(written))
        finally:
            library.LLVMPY_DisposeMemoryBuffer(written)

    def _make_passes(self, tools: _Tools, recipe: Recipe) -> int:
        """Makes the passes of the recipe, for one module: a pass of LLVM's levels does not run twice."""
        _, first_level, names = recipe
        if first_level:
            passes = self._library.LLVMPY_buildPerModuleDefaultPipeline(tools.builder, 1)
        else:
            passes = self._library.LLVMPY_CreateNewModulePassManager()
        for name in names:
            getattr(self._library, _PASSES[name])(passes)
        return int(passes)

    def _take_tools(self, level: int) -> _Tools:
        """Takes tools that no other thread uses. They live as long as the process, one set for each thread that compiled at
        once.
        """
        try:
            return self._unused.setdefault(level, []).pop()
        except IndexError:
            return self._make_tools(level)

    def _make_tools(self, level: int) -> _Tools:
        library, names = self._library, [name.encode() for name in (self.triple, self.cpu, self.features)]
        # Position-independent code of the small model reaches constants relative to the instruction, and all else through tables.
        machine = library.LLVMPY_CreateTargetMachine(self._target, *names, level, b"pic", b"small", 0, 0, b"")
        if not machine:
            raise RuntimeError(f"LLVM makes no code for {self.cpu}")
        data = library.LLVMPY_CreateTargetMachineData(machine)
        layout = self._said(library.LLVMPY_CopyStringRepOfTargetData, data)
        library.LLVMPY_DisposeTargetData(data)
        options = library.LLVMPY_CreatePipelineTuningOptions()
        library.LLVMPY_PTOSetLoopVectorization(options, False)
        library.LLVMPY_PTOSetSLPVectorization(options, False)
        library.LLVMPY_PTOSetLoopUnrolling(options, False)
        head = f'target datalayout = "{layout}"\ntarget triple = "{self.triple}"\n'
        return _Tools(machine, head.encode(), library.LLVMPY_CreatePassBuilder(machine, options))

    def _made(self, function: Any, *arguments: Any) -> int:
        """Returns the handle that a function of LLVM makes.

        Raises:
            RuntimeError: LLVM makes nothing; the message is LLVM's reason.
        """
        made, said = self._call(function, arguments)
        if not made:
            raise RuntimeError(said.strip() or "no reason given")
        return int(made)

    def _said(self, function: Any, *arguments: Any) -> str:
        """Returns the text that a function of LLVM returns."""
        return self._call(function, arguments)[1]

    def _call(self, function: Any, arguments: tuple[Any, ...]) -> tuple[Any, str]:
        """Returns the result of a function of LLVM, and its message."""
        said = ctypes.c_char_p()
        returned = function(*arguments, ctypes.byref(said))
        text = (said.value or b"").decode(errors="replace")
        self._library.LLVMPY_DisposeString(said)
        return returned, text


class _Tools:
    """The tools of one compiling thread: a description of the machine, the lines that say so in a text, and the builder of
    passes.
    """

    def __init__(self, machine: int, head: bytes, builder: int) -> None:
        self.machine, self.head, self.builder = machine, head, builder


# -- a process that compiles for others --------------------------------------------------------------------------------


class _Waiting:
    """Waiting requests; the longest text is taken first."""

    def __init__(self) -> None:
        self._requests: list[tuple[int, int, str, str]] = []
        self._changed, self._gate = allocate_lock(), allocate_lock()
        self._gate.acquire()  # closed while there are no requests

    def put(self, number: int, recipe: str, text: str) -> None:
        """Adds a request."""
        with self._changed:
            heapq.heappush(self._requests, (-len(text), number, recipe, text))
            if self._gate.locked():
                self._gate.release()

    def take(self) -> tuple[int, str, str]:
        """Waits for a request and takes it."""
        while True:
            self._gate.acquire()
            found = self.take_now()
            if found is not None:
                return found

    def take_now(self) -> tuple[int, str, str] | None:
        """Takes a request; None where there is none."""
        with self._changed:
            if not self._requests:
                return None
            _, number, recipe, text = heapq.heappop(self._requests)
            if self._requests and self._gate.locked():
                self._gate.release()
        return number, recipe, text


def serve(requests: io.BufferedIOBase, answers: io.BufferedIOBase, threads: int, llvm: Llvm) -> None:
    """Compiles requested texts until there are no more requests, the longest text first, so that no thread is left alone with one
    in the end.

    The process that asks has a processor to itself: of several threads one works only while answers are waited for.
    """
    waiting, writing, wanted = _Waiting(), allocate_lock(), allocate_lock()
    wanted.acquire()  # until the other process waits for answers

    def answer(number: int, success: bool, content: bytes) -> None:
        try:
            with writing:
                answers.write(ANSWER.pack(number, success, len(content)) + content)
                answers.flush()
        except OSError:
            os._exit(0)  # the process that asked is gone

    def compile_one(number: int, recipe: str, text: str) -> None:
        try:
            success, content = True, llvm.compile(text, decode(recipe))
        except Exception as error:  # each request is answered, else its sender would wait for ever
            success, content = False, str(error).encode()
        answer(number, success, content)

    def work() -> None:
        while True:
            compile_one(*waiting.take())

    def help_out() -> None:
        while True:
            wanted.acquire()
            while (found := waiting.take_now()) is not None:
                compile_one(*found)

    answer(NOTICE, True, b"")
    for _ in range(max(threads - 1, 1)):
        start_new_thread(work, ())
    if threads > 1:
        start_new_thread(help_out, ())
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        number, of_recipe, of_text = REQUEST.unpack(head)
        if number != NOTICE:
            waiting.put(number, requests.read(of_recipe).decode(), requests.read(of_text).decode())
        elif wanted.locked():
            wanted.release()


def main() -> None:
    """LIBRARY THREADS [CPU]: serves on standard input and output."""
    library, threads, *cpu = sys.argv[1:]
    with os.fdopen(os.dup(1), "wb") as answers, os.fdopen(0, "rb", closefd=False) as requests:
        os.dup2(2, 1)  # so that no other output stands between answers
        chosen = cpu[0] if cpu else None
        options = () if chosen is not None and chosen.startswith(GPU) else _WITHOUT
        serve(requests, answers, int(threads), Llvm(library, chosen, options))
        os._exit(0)  # unfinished texts are not waited for
