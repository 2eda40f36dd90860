"""Exports functions, builds C callers for them in empty folders, and compares with the same program compiled in Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.compiled.object_code import lowered_for, object_options
from nnc.exporting.record import Exported
from tests.unit.exporting.programs import Case

CALLER = """\
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "NAME.h"

#ifdef COUNT
extern void *__libc_malloc(size_t);
static long allocations;
void *malloc(size_t bytes) { return allocations++, __libc_malloc(bytes); }
#endif

#if defined __x86_64__
#define STACK_POINTER(at) __asm__ volatile("movq %%rsp, %0" : "=r"(at))
#else
#define STACK_POINTER(at) __asm__ volatile("mov %0, sp" : "=r"(at))
#endif

static void *room(size_t bytes) {
  void *memory = aligned_alloc(NAME_ALIGNMENT, (bytes / NAME_ALIGNMENT + 1) * NAME_ALIGNMENT);
  if (!memory) exit(3);
  memset(memory, 0xAA, (bytes / NAME_ALIGNMENT + 1) * NAME_ALIGNMENT);
  return memory;
}

static void *exactly(size_t bytes) { return malloc(bytes ? bytes : 1); }

int main(void) {
  const void *inputs[NAME_INPUTS + 1];
  void *outputs[NAME_OUTPUTS + 1];
  char file[64];
  for (int i = 0; i < NAME_INPUTS; i++) {
    size_t bytes = (size_t)NAME_inputs()[i].bytes;
    void *memory = exactly(bytes);
    snprintf(file, sizeof file, "input%d", i);
    FILE *opened = fopen(file, "rb");
    if (!opened || fread(memory, 1, bytes, opened) != bytes) return 4;
    fclose(opened);
    inputs[i] = memory;
  }
  for (int i = 0; i < NAME_OUTPUTS; i++) outputs[i] = exactly((size_t)NAME_outputs()[i].bytes);
  void *arena = room(NAME_ARENA_BYTES);
#ifdef START
  if (START() || START()) return 5;
#endif
  for (int time = 0; time < 2; time++) {
#ifdef COUNT
    long before = allocations;
#endif
#ifdef STACK /* marks a megabyte below this function, and finds the lowest byte that a call changed */
    volatile unsigned char *top, *low;
    STACK_POINTER(top);
    for (size_t i = 1; i <= 1 << 20; i++) top[-(ptrdiff_t)i] = 0x5C;
#endif
    int error = NAME(inputs, outputs, arena);
#ifdef STACK
    for (low = top - (1 << 20); low < top && *low == 0x5C;) low++;
    printf("%td", top - low);
    return 1;
#endif
#ifdef COUNT
    if (allocations != before) return 6;
#endif
    if (error) {
      puts(NAME_error(error));
      return 1;
    }
  }
  for (int i = 0; i < NAME_OUTPUTS; i++) {
    snprintf(file, sizeof file, "output%d", i);
    FILE *opened = fopen(file, "wb");
    fwrite(outputs[i], 1, (size_t)NAME_outputs()[i].bytes, opened);
    fclose(opened);
    free(outputs[i]);
  }
  for (int i = 0; i < NAME_INPUTS; i++) free((void *)inputs[i]);
  free(arena);
#ifdef STOP
  STOP();
#endif
  return 0;
}
"""


def leaves_of(tree: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a pytree, as NumPy's."""
    return [np.asarray(leaf) for leaf in nnc.tree.leaves(tree)]


def in_python(fun: Callable[..., Any], args: tuple[Any, ...], max_steps: int | None = None) -> list[Any]:
    """The result of the same program, with the same kernels, compiled in this process."""
    return leaves_of(lowered_for(fun, args, object_options("native", None, max_steps)).compile()(*args))


def build(folder: Path, name: str, *options: str, compiler: str = "cc") -> Path:
    """Builds the caller of an exported function in an empty folder; returns the program."""
    work = folder.parent / f"{folder.name}-built"
    work.mkdir(exist_ok=True)
    (work / "caller.c").write_text(CALLER.replace("NAME", name))
    command = [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(folder), "caller.c"]
    subprocess.run([*command, str(folder / f"{name}.o"), *options, "-lm", "-o", "caller"], cwd=work, check=True)
    return work / "caller"


def run(
    program: Path, exported: Exported, args: tuple[Any, ...], emulator: str | None = None
) -> list[np.ndarray[Any, Any]] | str:
    """Runs a caller on arrays; returns the outputs, or the message of its error."""
    for i, x in enumerate(leaves_of(args)):
        (program.parent / f"input{i}").write_bytes(np.ascontiguousarray(x).tobytes())
    command = [*([emulator] if emulator else []), f"./{program.name}"]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, timeout=60)
    if done.returncode == 1 and not done.stderr:
        return done.stdout
    assert done.returncode == 0, done.stderr
    return outputs_in(program.parent, exported)


def outputs_in(folder: Path, exported: Exported) -> list[np.ndarray[Any, Any]]:
    """Reads the outputs that a caller wrote."""
    found = []
    for i, spec in enumerate(exported.outputs):
        data = np.frombuffer((folder / f"output{i}").read_bytes(), nnc.ShapeDtypeStruct((), spec.dtype).dtype)
        found.append(data.reshape(spec.shape))
    return found


def check(
    folder: Path, fun: Callable[..., Any], *args: Any, sanitize: bool = False, **options: Any
) -> Exported:  # fmt: skip
    """Exports a function, runs it from C and from Python, and compares bits with the program in Python."""
    exported = nnc.export(fun, *args, path=folder, name="program", **options)
    expected = in_python(fun, args, options.get("max_steps"))
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if sanitize else []
    found = run(build(folder, "program", *flags), exported, args)
    assert not isinstance(found, str), found
    loaded = nnc.load_exported(folder)(*args)
    for x, y, z in zip(expected, found, loaded if isinstance(loaded, tuple) else (loaded,), strict=True):
        assert x.tobytes() == y.tobytes() == z.tobytes(), np.max(np.abs(x.astype(np.float64) - y))
    return exported


def check_stack(
    folder: Path, case: Case, target: str, *options: str, compiler: str = "cc", emulator: str | None = None
) -> None:
    """Exports a function and compares the stack that a call from C takes with the record."""
    fun, args = case
    exported = nnc.export(fun, *args, path=folder, name="program", target=target)
    used = run(build(folder, "program", "-DSTACK", *options, compiler=compiler), exported, args, emulator)
    assert isinstance(used, str)
    check_depth(exported, int(used))


def check_depth(exported: Exported, used: int) -> None:
    """Compares the stack that a call took with the record. Functions of other libraries, which it leaves out, take little."""
    assert exported.stack_bytes is not None
    left_out = 256 if exported.needs else 0
    assert used - left_out <= exported.stack_bytes <= 2 * used + 512


def unresolved(folder: Path, name: str = "program") -> set[str]:
    """The names that an object file needs."""
    listed = subprocess.run(["nm", "-u", f"{name}.o"], cwd=folder, check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def lapack() -> Path | None:
    """A library with 32-bit integers, whose names begin with `scipy_`."""
    scipy = pytest.importorskip("scipy")
    found = sorted((Path(scipy.__file__).parent.parent / "scipy.libs").glob("libscipy_openblas-*.so"))
    return found[0] if found and shutil.which("objcopy") else None
