"""Links modules of LLVM's text to one relocatable object file, for any processor that LLVM knows.

It uses llvmlite's own Python, in this process: other than `llvm.py`, which compiles kernels while a user waits, an export has time.
Each module goes through the passes that it would go through as a part of a program in this process, before modules are linked.
So the instructions, and the digits of results, are the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from nnc.backends.llvm.llvm import Recipe
from nnc.backends.llvm.stack import stack_bytes
from nnc.base.fork import fork_waits
from nnc.base.options import chosen_cpu
from nnc.device.targets.objects import ObjectTarget
from nnc.errors import InternalError

_LEVEL = 2  # of code generation, as kernels have it


class ObjectFile(NamedTuple):
    """An object file.

    Attributes:
        content: its bytes.
        code_bytes: bytes of its instructions.
        needs: the functions of other libraries that it calls.
        stack_bytes: bytes of the stack that a call of the first export takes at most; None where that is not known.
    """

    content: bytes
    code_bytes: int
    needs: tuple[str, ...]
    stack_bytes: int | None


def known_targets() -> list[str]:
    """Returns the names of the processor families for which this LLVM makes code."""
    binding = _binding()
    found = []
    for name in ("x86_64", "aarch64", "armv7", "wasm32", "riscv64", "powerpc64le"):
        try:
            binding.Target.from_triple(f"{name}-unknown-unknown")
        except RuntimeError:
            continue
        found.append(name)
    return found


def make_object(modules: Sequence[tuple[str, Recipe]], exports: Sequence[str], target: ObjectTarget) -> ObjectFile:
    """Compiles modules, each by the passes of its recipe, to one object file whose names are internal, but for `exports`.

    Raises:
        InternalError: LLVM refuses a text.
    """
    binding = _binding()
    with fork_waits():
        cpu, features = target.cpu, target.features
        if target.is_native and (chosen := chosen_cpu()) is not None:
            cpu = chosen
        elif target.is_native:
            cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
        triple = target.triple or binding.get_process_triple()
        machine = binding.Target.from_triple(triple).create_target_machine(
            cpu, features, _LEVEL, reloc=target.relocation, codemodel="small"
        )
        head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        context = binding.create_context()
        linked: Any = None
        for text, recipe in modules:
            try:
                module = binding.parse_assembly(head + text, context)
            except RuntimeError as error:
                raise InternalError(f"LLVM does not take this text: {error}") from error
            _run_passes(binding, machine, module, recipe)
            if linked is None:
                linked = module
            else:
                linked.link_in(module)
        defined = [f for f in linked.functions if not f.is_declaration]
        own = {value.name for value in (*defined, *linked.global_variables)}
        for function in defined:
            if function.name not in exports and function.linkage.name == "external":
                function.linkage = "internal"
        _clean(binding, machine, linked)
        content = machine.emit_object(linked)
        assembly = machine.emit_assembly(linked)
        code, names = 0, set[str]()
        for section in binding.ObjectFileRef.from_data(content).sections():  # each is valid until the next one
            name = _text(section.name())
            if name.startswith(".text") or name == "CODE":
                code += section.size()
            elif name == ".strtab":
                names.update(map(_text, section.data().split(b"\0")))
        needs = {name for name in names if name.isidentifier()} - own - set(exports)
    needs.discard("_GLOBAL_OFFSET_TABLE_")
    deepest = stack_bytes(assembly, exports[0], target.architecture)
    return ObjectFile(content, code, tuple(sorted(needs)), deepest)


def _text(name: str | bytes | None) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name or ""


def _run_passes(binding: Any, machine: Any, module: Any, recipe: Recipe) -> None:
    """Runs the passes of a recipe, as `llvm.Llvm` does."""
    _, first_level, names = recipe
    options = binding.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    passes = builder.getModulePassManager() if first_level else binding.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


def _clean(binding: Any, machine: Any, module: Any) -> None:
    """Drops functions that nobody calls."""
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


@cache
def _binding() -> Any:
    """Loads llvmlite, with the code generators of all processors."""
    binding = importlib.import_module("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding
