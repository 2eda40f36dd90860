"""Finds LLVM within llvmlite, checks that nnc knows how to call it, and calls llvmlite's own Python where there is time.

`llvm.py` calls the library according to its `SIGNATURES`. Another version of llvmlite may have other functions, which is found
out here, before one is called in a wrong way.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nnc.backends.llvm.llvm import KERNEL, SIGNATURES, Llvm

_KNOWN = ("0.50.",)  # the versions whose functions are known to be as `SIGNATURES` says; the others are asked


def llvmlite_version() -> str:
    """Returns the version of the package."""
    return str(importlib.import_module("llvmlite").__version__)


def find_library() -> str:
    """Finds the path of llvmlite's library.

    Raises:
        ImportError, OSError: llvmlite is absent or damaged, or of a version that nnc cannot call.
    """
    package = importlib.import_module("llvmlite")
    name = importlib.import_module("llvmlite.utils").get_library_name()
    beside = Path(package.__file__ or "").parent / "binding" / name
    if llvmlite_version().startswith(_KNOWN) and beside.is_file():
        return str(beside)
    library = importlib.import_module("llvmlite.binding").ffi.lib
    if wrong := differing(library):
        raise ImportError(f"nnc does not know llvmlite {llvmlite_version()}: {', '.join(wrong)} take other arguments")
    return str(library._name)


def differing(library: Any) -> list[str]:
    """Returns the functions that nnc would call in another way than llvmlite does, which has said so when it was imported."""
    return [name for name, form in SIGNATURES.items() if not _agrees(getattr(library, name, None), *form)]


def _agrees(function: Any, returned: Any, taken: tuple[Any, ...]) -> bool:
    """Whether a function takes and returns values of these sizes, as far as llvmlite declares its parameters: where it declares
    none, a function returns a number. Functions that are not looked at here may be returned.
    """
    if function is None or (returned is not None and _size(function.restype) != _size(returned)):
        return False
    return function.argtypes is None or list(map(_size, function.argtypes)) == list(map(_size, taken))


def _size(kind: Any) -> int:
    """Returns the bytes of a value; nothing has none."""
    return 0 if kind is None else ctypes.sizeof(kind)


def make_loader(llvm: Llvm) -> Any:
    """Makes a loader of object files, which keeps them apart from all others."""
    binding = importlib.import_module("llvmlite.binding")
    target = binding.Target.from_triple(llvm.triple)
    machine = target.create_target_machine(llvm.cpu, llvm.features, KERNEL[0], reloc="pic", codemodel="small")
    return binding.create_lljit_compiler(machine, use_jit_link=sys.platform != "win32", suppress_errors=True)


def make_builder() -> Any:
    """Makes a collection of object files to be loaded together."""
    return importlib.import_module("llvmlite.binding").JITLibraryBuilder()


def names_in(objects: Iterable[bytes]) -> set[str]:
    """Returns the names of functions and variables that object files (of the form ELF) define or need."""
    binding = importlib.import_module("llvmlite.binding")
    tables = [
        section.data() for image in objects for section in binding.ObjectFileRef.from_data(image).sections()
        if section.name() == b".strtab"
    ]  # fmt: skip
    names = {name.decode() for table in tables for name in table.split(b"\0")}
    return {name for name in names if name and not name.startswith((".", "<"))}
