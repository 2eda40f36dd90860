"""llvmlite's library is called as llvmlite itself calls it, in any version."""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path

import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.llvm import llvmlite_library
from nnc.backends.llvm.llvm import SIGNATURES
from nnc.backends.llvm.llvmlite_library import differing, find_library, llvmlite_version


def test_functions_have_the_argument_types_of_llvmlite() -> None:
    assert differing(importlib.import_module("llvmlite.binding").ffi.lib) == []


def test_the_version_that_is_here_is_known_and_its_library_beside_it() -> None:
    assert llvmlite_version().startswith(llvmlite_library._KNOWN)
    assert find_library() == importlib.import_module("llvmlite.binding").ffi.lib._name


def test_another_version_is_asked_for_argument_types(monkeypatch: pytest.MonkeyPatch) -> None:
    known = find_library()
    monkeypatch.setattr(llvmlite_library, "_KNOWN", ())
    assert find_library() == known
    monkeypatch.setitem(SIGNATURES, "LLVMPY_ContextDispose", (None, (ctypes.c_void_p, ctypes.c_int)))
    monkeypatch.setitem(SIGNATURES, "LLVMPY_GetBufferSize", (ctypes.c_byte, (ctypes.c_void_p,)))
    monkeypatch.setitem(SIGNATURES, "LLVMPY_GetBufferStart", (ctypes.c_void_p, (ctypes.c_byte,)))
    monkeypatch.setitem(SIGNATURES, "LLVMPY_Invented", (None, ()))
    names = "LLVMPY_ContextDispose, LLVMPY_GetBufferStart, LLVMPY_GetBufferSize, LLVMPY_Invented"
    with pytest.raises(ImportError, match=f"nnc does not know llvmlite {llvmlite_version()}: {names} "):
        Engine()


def test_a_library_that_lies_elsewhere_is_found_by_llvmlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = find_library()
    monkeypatch.setattr(importlib.import_module("llvmlite"), "__file__", str(tmp_path / "__init__.py"))
    assert find_library() == known
