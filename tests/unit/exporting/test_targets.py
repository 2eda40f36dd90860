"""Exports for other processors: every one makes an object file; those that can be linked and run here give the same numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
from nnc.base.machine import CPUS, processor
from nnc.compiled import object_code
from nnc.device.targets.objects import OBJECT_TARGETS
from tests.unit.exporting.harness import build, check_depth, check_stack, in_python, leaves_of, outputs_in, run
from tests.unit.exporting.programs import PROGRAMS

NAMES = (
    "mlp",
    "lenet",
    "sorting",
    "random_walk",
    "kalman",
    "complex_numbers",
    "mixed_precision",
    "scatters",
    "edges",
    "branches",
)


class Emulated(NamedTuple):
    """The tools that build and run a program of another processor."""

    compiler: str
    emulator: str


EMULATED = {
    "aarch64": Emulated("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
    "armv7": Emulated("arm-linux-gnueabihf-gcc", "qemu-arm-static"),
}


def compare(expected: list[Any], found: list[Any]) -> None:
    """Compares results to the digits of their dtypes."""
    for x, y in zip(expected, found, strict=True):
        if x.dtype.kind in "biu":
            np.testing.assert_array_equal(x, y)
        else:
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            digits = 1e-2 if x.dtype.itemsize == 2 else 1e-10 if x.dtype in (np.float64, np.complex128) else 1e-4
            np.testing.assert_allclose(y.astype(wide), x.astype(wide), rtol=digits, atol=digits)


@pytest.mark.parametrize("target", OBJECT_TARGETS)
def test_every_target_has_an_object_file(target: str, tmp_path: Path) -> None:
    fun, args = PROGRAMS["mlp"]()
    exported = nnc.export(fun, *args, path=tmp_path / "out", name="mlp", target=target)
    assert 0 < exported.code_bytes < 100_000
    content = (tmp_path / "out" / "mlp.o").read_bytes()
    assert content.startswith(b"\0asm" if target == "wasm32" else b"\x7fELF")


@pytest.mark.parametrize("target", OBJECT_TARGETS)
def test_constants_are_written_into_the_object_file(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM reads none of their bytes as text: a ResNet's took half a minute."""
    sizes, make = list[int](), object_code.make_object

    def measured(modules: Sequence[tuple[str, Any]], *args: Any) -> Any:
        sizes.extend(len(text) for text, _ in modules)
        return make(modules, *args)

    monkeypatch.setattr(object_code, "make_object", measured)
    large, small = np.random.default_rng(0).normal(size=1 << 15), np.array([3.0, 4.0])
    nnc.export(lambda x: (x * large, small, large[:0]), np.float64(2), path=tmp_path / "out", name="f", target=target)
    assert sum(sizes) < 100_000
    content = (tmp_path / "out" / "f.o").read_bytes()
    assert content.count(large.tobytes()) == content.count(small.tobytes()) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [target for target in CPUS if target in OBJECT_TARGETS])
def test_older_processors_give_the_same_numbers(target: str, name: str, tmp_path: Path) -> None:
    here = processor(Path("/proc/cpuinfo"))
    if not here["system"].endswith("x86_64") or not set(CPUS[target]) <= set(here["vector units"].split(", ")):
        pytest.skip("this processor lacks the instructions")
    fun, args = PROGRAMS[name]()
    nnc.export(fun, *args, path=tmp_path / "out", name="program", target=target)
    found = nnc.load_exported(tmp_path / "out")(*args)
    compare(in_python(fun, args), list(found if isinstance(found, tuple) else (found,)))


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
    compare(in_python(fun, args), found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", EMULATED)
def test_the_stack_of_other_processors_is_as_deep_as_the_record_says(target: str, name: str, tmp_path: Path) -> None:
    if not all(map(shutil.which, EMULATED[target])):
        pytest.skip("no tools for this processor")
    check_stack(tmp_path / "out", PROGRAMS[name](), target, "-static", **EMULATED[target]._asdict())


NODE = """
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./program.mjs";
const f = await load(readFileSync("program.wasm"));
const inputs = JSON.parse(readFileSync("inputs.json")).map(([type, file]) => {
  const bytes = readFileSync(file);
  return new globalThis[type](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
});
f(...inputs);
f(...inputs).forEach((x, i) => writeFileSync(`output${i}`, new Uint8Array(x.buffer)));
"""
TYPED = {
    "float32": "Float32Array", "float64": "Float64Array", "int32": "Int32Array", "int64": "BigInt64Array",
    "uint32": "Uint32Array", "complex64": "Float32Array", "complex128": "Float64Array",
}  # fmt: skip


def run_in_node(folder: Path, args: tuple[Any, ...], script: str = NODE) -> str:
    """Runs a script in Node on arrays; returns its output."""
    arrays = leaves_of(args)
    for i, x in enumerate(arrays):
        (folder / f"input{i}").write_bytes(np.ascontiguousarray(x).tobytes())
    listed = [(TYPED[x.dtype.name], f"input{i}") for i, x in enumerate(arrays)]
    (folder / "inputs.json").write_text(json.dumps(listed))
    (folder / "run.mjs").write_text(script)
    return subprocess.run(
        ["node", "run.mjs"], cwd=folder, check=True, timeout=60, capture_output=True, text=True
    ).stdout


in_node = pytest.mark.skipif(not all(map(shutil.which, ("wasm-ld", "node"))), reason="wasm-ld or node is not installed")


@in_node
@pytest.mark.parametrize("name", NAMES)
def test_webassembly_gives_the_same_numbers_in_node(name: str, tmp_path: Path) -> None:
    fun, args = PROGRAMS[name]()
    exported = nnc.export(fun, *args, path=tmp_path / "out", name="program", target="wasm32")
    run_in_node(tmp_path / "out", args)
    compare(in_python(fun, args), outputs_in(tmp_path / "out", exported))


MARKED = """
const { memory, __stack_pointer } = globalThis.exported, bottom = __stack_pointer.value - 65536;
new Uint8Array(memory.buffer, bottom, 65536).fill(0x5C);
f(...inputs);
const left = new Uint8Array(memory.buffer, bottom, 65536).findIndex((byte) => byte !== 0x5C);
console.log(left < 0 ? 0 : 65536 - left);
"""


@in_node
@pytest.mark.parametrize("name", NAMES)
def test_the_stack_of_webassembly_is_as_deep_as_the_record_says(name: str, tmp_path: Path) -> None:
    fun, args = PROGRAMS[name]()
    folder = tmp_path / "out"
    exported = nnc.export(fun, *args, path=folder, name="program", target="wasm32")
    loader, begin = folder / "program.mjs", "  const { memory,"
    text = loader.read_text()
    assert begin in text
    loader.write_text(text.replace(begin, f"  globalThis.exported = instance.exports;\n{begin}"))
    command = [
        "wasm-ld",
        "--no-entry",
        "--allow-undefined",
        "-z",
        "stack-size=1048576",
        "program.o",
        "-o",
        "program.wasm",
    ]
    shown = ("program", "program_error", "__heap_base", "__stack_pointer")
    subprocess.run([*command, *(f"--export={each}" for each in shown)], cwd=folder, check=True)
    script = NODE[: NODE.index("f(...inputs);")] + MARKED
    check_depth(exported, int(run_in_node(folder, args, script)))
