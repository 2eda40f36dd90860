"""Exports for other processors: every one makes an object file; those that can be linked and run here give the same numbers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import nnc
from nnc.device.targets.objects import OBJECT_TARGETS
from tests.unit.exporting.harness import build, in_python, run
from tests.unit.exporting.programs import PROGRAMS

NAMES = ("mlp", "lenet", "sorting", "random_walk", "kalman", "complex_numbers", "mixed_precision", "scatters", "edges", "branches")


class Emulated(NamedTuple):
    """The tools that build and run a program of another processor."""

    compiler: str
    emulator: str


EMULATED = {
    "aarch64": Emulated("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
    "armv7": Emulated("arm-linux-gnueabihf-gcc", "qemu-arm-static"),
}


@pytest.mark.parametrize("target", OBJECT_TARGETS)
def test_every_target_has_an_object_file(target: str, tmp_path: Path) -> None:
    fun, args = PROGRAMS["mlp"]()
    exported = nnc.export(fun, *args, path=tmp_path / "out", name="mlp", target=target)
    assert 0 < exported.code_bytes < 100_000
    content = (tmp_path / "out" / "mlp.o").read_bytes()
    assert content.startswith(b"\0asm" if target == "wasm32" else b"\x7fELF")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", EMULATED)
def test_other_processors_give_the_same_numbers(target: str, name: str, tmp_path: Path) -> None:
    tools = EMULATED[target]
    fun, args = PROGRAMS[name]()
    exported = nnc.export(fun, *args, path=tmp_path / "out", name="program", target=target)
    if not all(map(shutil.which, tools)):
        pytest.skip("no tools for this processor")
    found = run(build(tmp_path / "out", "program", "-static", compiler=tools.compiler), exported, args, tools.emulator)
    assert not isinstance(found, str), found
    for x, y in zip(in_python(fun, args), found, strict=True):
        if x.dtype.kind in "biu":
            np.testing.assert_array_equal(x, y)
        else:
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            digits = 1e-2 if x.dtype.itemsize == 2 else 1e-10 if x.dtype in (np.float64, np.complex128) else 1e-4
            np.testing.assert_allclose(y.astype(wide), x.astype(wide), rtol=digits, atol=digits)
