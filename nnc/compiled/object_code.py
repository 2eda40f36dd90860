"""Compiles a function to an object file that needs neither Python nor nnc: joins tracing, lowering and LLVM for `nnc.export`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from nnc import tree
from nnc.array.array import as_value
from nnc.array.promote import astype, is_weak, with_weakness
from nnc.backends.blas.linked import BLAS, adapters_text, is_linkable
from nnc.backends.cpu.compiler.jit import compiler, recipe_of, recipe_of_program, why_absent
from nnc.backends.cpu.compiler.runtime import FMA_TEXT, address_of_any, alone_text, c_libraries, conversions_text
from nnc.backends.cpu.threads.pool import is_supported
from nnc.backends.cpu.threads.started import started_text
from nnc.backends.llvm.llvm import CALLS, Recipe
from nnc.backends.llvm.objects import ObjectFile, known_targets, make_object
from nnc.base.context import set_context
from nnc.base.dtypes import shown_dtype
from nnc.base.garbage import collection_paused
from nnc.base.options import Options
from nnc.commands.pack import Blocks
from nnc.compiled.compiled import Compiled
from nnc.compiled.executable import Lowered
from nnc.compiled.pipeline import lower_to_parts
from nnc.compiled.signature import Signature
from nnc.compiled.toolchain import toolchain
from nnc.device import CPU
from nnc.device.targets.objects import OBJECT_TARGETS, ObjectTarget
from nnc.errors import BackendError, UnsupportedError, user_error
from nnc.graph import TensorSpec
from nnc.graph.kernels import kernel
from nnc.lower.kernels.native import Native
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Kind, NDArray, Step, row_major
from nnc.run.exported_entry import ALIGNMENT, ExportedText, missing_kernels, print_exported
from nnc.run.native_program import ProgramParts
from nnc.run.report import Cost, MemoryPlan, make_cost, make_memory_plan

__all__ = ["ALIGNMENT", "OBJECT_TARGETS", "known_targets"]

WHERE = "nnc.export"
_LOOPS = ("while", "scan", "pull_iterations")  # that keep values of a number of iterations that nobody knows


class Operand(NamedTuple):
    """An input or an output of an exported function: its path in the pytree, its spec, and its strides in bytes."""

    path: str
    spec: TensorSpec
    strides: tuple[int, ...]


class ObjectCode(NamedTuple):
    """An exported function: its object file, its text, its operands, and the memory and work of a call."""

    file: ObjectFile
    printed: ExportedText
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    memory_plan: MemoryPlan
    cost: Cost


def object_options(
    target: str, memory_budget: int | None = None, max_steps: int | None = None, *, links: bool = False
) -> Options:
    """Returns the options of an exported program: printed kernels, and LAPACK's where it `links` them, on one stream."""
    machine = OBJECT_TARGETS[target].machine(*((BLAS, CPU) if links else (CPU, BLAS)))
    return Options(memory_budget=memory_budget, streams=1, machine=machine, max_steps=max_steps)


def lowered_for(fun: Callable[..., Any], specs: tuple[Any, ...], options: Options) -> Lowered:
    """Traces a function, compiled or not, on specs; nothing is donated, since inputs are the caller's. Of the options of a compiled
    one, those count that change results.
    """
    own = Signature.of(fun, None, None, None, None)
    if isinstance(fun, Compiled):
        own, chosen = fun.signature, fun.options
        options = options.update(contract=chosen.contract, flush_denormals=chosen.flush_denormals)
    inner = own.fun

    @wraps(inner)
    def strong(*args: Any, **kwargs: Any) -> Any:
        return tree.map(_as_shown, inner(*args, **kwargs))

    call = own._replace(fun=strong, donate_nums=(), donate_names=()).take_apart(specs, {}, options.device)
    return Lowered.of(call, options)


def _as_shown(leaf: Any) -> Any:
    """Gives a number of no fixed dtype the one that users see; Python's numbers have 64 bits in memory."""
    weak = is_weak(leaf)
    if not weak:
        return leaf
    value = as_value(leaf)
    return with_weakness(as_value(astype(value, shown_dtype(value.spec.dtype, weak))), False)


def compile_to_object(
    lowered: Lowered, name: str, target: str, *, inside: bool = True, threads: int = 0, links: bool = False
) -> ObjectCode:
    """Compiles a traced function to an object file with the C function `name`.

    Args:
        inside: whether the object file holds the constants.
        threads: threads that share its loops; the caller is one of them.
        links: whether it may call LAPACK by name.

    Raises:
        UnsupportedError: steps need Python.
        MemoryBudgetError: no plan fits.
    """
    processor, options = OBJECT_TARGETS[target], lowered.options
    with collection_paused(), set_context(program=options):
        graph, used = lowered.wanted()
        explicit = lowered.num_explicit
        options = options.update(keeps=tuple(place for place, i in enumerate(used) if i >= explicit))
        parts = lower_to_parts(graph, options, toolchain(options.device).choose_kernel)
        missing = missing_kernels(parts, is_linkable if links else lambda symbol: False)
        if missing:
            raise _needs_python(missing, links)
        given = _with_packed([i if i < explicit else lowered.captured_arrays()[i - explicit] for i in used], parts)
        printed = print_exported(name, parts, given, inside=inside)
    own = (name, f"{name}_error", *((f"{name}_start", f"{name}_stop") if threads > 1 else ()))
    assert options.machine is not None, "object_options gives one"
    pool = started_text(name, threads, options.machine.threads, processor.architecture) if threads > 1 else None
    file = make_object(_modules(printed, processor, pool), own, processor)
    if inside:
        file = file._replace(content=printed.with_constants(file.content))
    inputs, outputs = (
        tuple(Operand(path, spec, row_major(spec)) for path, spec in operands) for operands in lowered.operands()
    )
    return ObjectCode(file, printed, inputs, outputs, make_memory_plan(parts.planned), make_cost(parts.planned))


def load_object(content: bytes, needs: Sequence[str], exports: Sequence[str]) -> tuple[dict[str, int], Any]:
    """Loads an object file into this process; returns the addresses of its functions, and the object that keeps them loaded.

    Raises:
        BackendError: nnc has no compiler on this machine, or a function of a library is missing.
    """
    found = compiler()
    if found is None:
        problem = f"there is no compiler on this machine: {why_absent()}."
        raise user_error(BackendError, "nnc.load_exported", problem, fix="link the object file into a program.")
    libraries = c_libraries()
    addresses = {name: address for name in needs if (address := address_of_any(libraries, name)) is not None}
    missing = [name for name in needs if name not in addresses]
    if missing:
        problem = f"no loaded library has {', '.join(missing)}."
        fix = "load one before: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)."
        raise user_error(BackendError, "nnc.load_exported", problem, fix=fix)
    loaded = found.engine.link([content], addresses, exports)
    return dict(loaded.addresses), loaded


def has_threads(target: str) -> bool:
    """Whether loops can be shared by threads on a target."""
    return is_supported("linux", OBJECT_TARGETS[target].architecture)


def runs_here(target: str) -> bool:
    """Whether this machine may run code for a target: its processor family is the same."""
    return OBJECT_TARGETS[target].architecture == platform.machine()


def _with_packed(given: list[int | NDArray], parts: ProgramParts) -> list[int | NDArray]:
    """Returns the inputs of a program with the packed forms of captured arrays, which take the places of those that no
    step reads.
    """
    bound = parts.planned.bound
    packed = [Blocks.of(layout).pack(given[source]) for source, layout in bound.kept]
    views = (*bound.outputs, *(view for step in walk(bound.steps) for view in step.inputs))
    read = {buffer.index for buffer in (bound.buffers[view.buffer] for view in views) if buffer.kind is Kind.INPUT}
    left = [x if isinstance(x, int) or i in read else np.empty(0, x.dtype) for i, x in enumerate(given)]
    return [*left, *packed]


def _modules(printed: ExportedText, target: ObjectTarget, pool: str | None) -> list[tuple[str, Recipe]]:
    """Returns the modules of an object file: the entry, the kernels, and the functions that both may call.

    Args:
        pool: the threads that share loops; None: the caller's alone.
    """
    kernels: dict[str, Native] = {}
    left = list(printed.called)
    while left:
        native = left.pop()
        if native.name not in kernels:
            kernels[native.name] = native
            left += native.calls
    modules = [(printed.text, recipe_of_program(printed.text))]
    modules += [(native.code, recipe_of(native)) for native in kernels.values()]
    symbols = sorted({symbol for native in (*kernels.values(), *printed.held) for symbol in native.symbols})
    if symbols:
        modules.append((adapters_text(symbols), CALLS))
    modules.append((pool or alone_text(target.architecture), CALLS))
    if target.architecture == "wasm32":
        modules.append((FMA_TEXT, CALLS))
    if any("half" in text for text, _ in modules):
        modules.append((conversions_text().replace("define ", "define weak hidden "), CALLS))
    return modules


def _has_lapack(step: Step) -> bool:
    return any(each.backend == BLAS for each in kernel.get(step.command, ()))


def _needs_python(steps: list[Step], links: bool) -> UnsupportedError:
    """Builds the error that lists each user's line that needs Python."""
    found = dict.fromkeys(
        (step.command.name, step.source.describe() if step.source is not None else "") for step in steps
    )
    count = "one step needs" if len(found) == 1 else f"{len(found)} steps need"
    rows = "".join(f"\n    {command} at {place}" for command, place in found)
    problem = f"{count} Python, which an exported program does without:{rows}"
    if not links and any(_has_lapack(step) for step in steps):
        return user_error(UnsupportedError, WHERE, problem, fix='pass lapack="link" to call LAPACK by name.')
    fix = (
        "pass max_steps= to nnc.export, and keep more states by checkpoint=." if any(step.command.name in _LOOPS for step in steps)
        else "leave these commands out, or compute them before and behind the exported function."
    )  # fmt: skip
    return user_error(UnsupportedError, WHERE, problem, fix=fix)
