"""Writes a compiled function as an object file with a C header."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from nnc import __version__
from nnc.base.options import parse_bytes
from nnc.compiled.object_code import (
    ALIGNMENT,
    OBJECT_TARGETS,
    WHERE,
    ObjectCode,
    Operand,
    compile_to_object,
    has_threads,
    known_targets,
    lowered_for,
    object_options,
)
from nnc.errors import ArgumentError, ArgumentTypeError, FileAccessError, UnsupportedError, user_error
from nnc.errors.errors import check_choice, check_count
from nnc.errors.tracebacks import api_boundary
from nnc.exporting.header import print_header
from nnc.exporting.record import Exported, ExportedTensor
from nnc.exporting.webassembly import write_module
from nnc.trace.core.flat import check_callable, name_of

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long main
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register requires restrict
    return short signed sizeof static static_assert struct switch template this thread_local throw true try typedef typeid
    typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
"""  # of C and C++, and the name of the program's own function
_MATHEMATICAL = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin
    fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter
    nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
"""  # functions of C, and those with f or l behind them
_LIBRARY = """
    abort abs accept atexit atof atoi atol bind bsearch calloc clock close connect div exit free gamma getenv index j0 j1 jn kill
    labs ldiv link listen llabs malloc memchr memcmp memcpy memmove memset open pipe poll printf puts qsort raise rand read
    realloc remove rename select send setenv signal sleep srand stat strcat strchr strcmp strcpy strlen strtod strtol system
    time wait write y0 y1 yn
"""  # other functions of C and of POSIX
_MOST_INSIDE = 1 << 31  # bytes of constants that code of the small model reaches
_MOST_THREADS = 1024


@api_boundary
def export(
    fun: Callable[..., object],
    *specs: Any,
    path: str | os.PathLike[str],
    name: str | None = None,
    target: str = "native",
    threads: int = 0,
    constants: str = "inside",
    max_steps: int | None = None,
    lapack: str | None = None,
    memory_budget: int | str | None = None,
) -> Exported:
    """Compiles `fun` to an object file that needs libc and libm at most, and writes a C header for it.

    The folder holds `NAME.o`, `NAME.h`, and `NAME.json`, which says the same as the header; with `constants="file"` also
    `NAME.bin`. For "wasm32" there are also `NAME.wasm` and its loader `NAME.mjs`, where `wasm-ld` is installed.
    The C function is `int NAME(const void *const *inputs, void *const *outputs, void *arena)`. Inputs are the leaves of the
    arguments, outputs those of the result, all row-major. Arrays that `fun` captures become constants. A call allocates nothing;
    calls at the same time need an arena each.

    Args:
        fun: a function of pytrees of arrays, compiled or not.
        specs: its arguments: arrays, numbers or `nnc.ShapeDtypeStruct`s, of which only shapes and dtypes count.
        path: the folder to make; there is none of this name yet.
        name: the C function's name; by default that of `fun`. No function of the C library has it.
        target: "native" (this processor), "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "armv7" or "wasm32".
        threads: threads that share long loops, the caller's among them; 0: none. `NAME_start()` makes them, `NAME_stop()`
            ends them.
        constants: "inside" the object file, or in a "file" that callers map and hand over as a fourth argument.
        max_steps: the most iterations of loops of unknown length whose gradient is taken; a longer loop is an error.
        lapack: "link": factorizations call LAPACK by name (`dgetrf_`, …; 32-bit integers), so link it, for instance by `-llapack`.
        memory_budget: bytes, or a text such as "256KiB", that arena and outputs must fit into.

    Returns:
        the record of the function: its operands, its quantities; `print` shows them.

    Raises:
        UnsupportedError: the program needs Python; the message lists each line that does.
        ArgumentError, ArgumentTypeError: a spec is no array, the name is no C identifier or one of the C library's, there is no
            such target, or a number is out of range.
        MemoryBudgetError: no plan fits.
        FileAccessError: the folder exists, or cannot be made.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "square"
        >>> made = nnc.export(lambda x: x * x, nnc.ShapeDtypeStruct((4,), "float32"), path=folder, name="square")
        >>> sorted(file.name for file in folder.iterdir())
        ['square.h', 'square.json', 'square.o']
        >>> nnc.load_exported(folder)(np.arange(4, dtype=np.float32))
        array([0., 1., 4., 9.], dtype=float32)
    """
    check_callable(fun, WHERE)
    folder = _checked_folder(path)
    name = _checked_name(name, fun)
    _check_target(target)
    check_choice(WHERE, "constants", constants, ("inside", "file"))
    check_choice(WHERE, "lapack", lapack, (None, "link"))
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= _MOST_THREADS:
        fix = "give a number of threads, or 0 for none."
        raise user_error(ArgumentError, WHERE, f"threads is {threads!r}; it must be an int from 0 to 1024.", fix=fix)
    if threads and not has_threads(target):
        raise user_error(UnsupportedError, WHERE, f"there are no threads on {target}.", fix="pass threads=0.")
    if lapack == "link" and not has_threads(target):  # where pointers have 64 bits
        raise user_error(UnsupportedError, WHERE, f"LAPACK is not linked on {target}.", fix="pass lapack=None.")
    if max_steps is not None:
        check_count(WHERE, "max_steps", max_steps, "give the most iterations that loops may have.")
    options = object_options(
        target, None if memory_budget is None else parse_bytes(memory_budget), max_steps, links=lapack == "link"
    )
    lowered = lowered_for(fun, specs, options)
    inside = constants == "inside"
    if inside and sum(value.nbytes for value in lowered.captured_arrays()) >= _MOST_INSIDE:
        problem = "the constants take 2 GB or more, which an object file cannot hold."
        raise user_error(ArgumentError, WHERE, problem, fix='pass constants="file".')
    code = compile_to_object(lowered, name, target, inside=inside, threads=threads, links=lapack == "link")
    exported = _record(name, target, threads, constants, code)
    _write(folder, exported, code)
    return exported


def _record(name: str, target: str, threads: int, constants: str, code: ObjectCode) -> Exported:
    return Exported(
        name=name,
        target=target,
        threads=threads,
        constants=constants,
        inputs=tuple(map(_tensor, code.inputs)),
        outputs=tuple(map(_tensor, code.outputs)),
        arena_bytes=code.printed.arena_bytes,
        code_bytes=code.file.code_bytes,
        constant_bytes=code.printed.constant_bytes,
        stack_bytes=code.file.stack_bytes,
        flops=code.cost.flops,
        needs=code.file.needs,
        errors=code.printed.errors,
        versions={"nnc": __version__, "llvmlite": metadata.version("llvmlite")},
    )


def _tensor(operand: Operand) -> ExportedTensor:
    spec = operand.spec
    return ExportedTensor(operand.path, spec.shape, spec.dtype.name, operand.strides, spec.nbytes)


def _write(folder: Path, exported: Exported, code: ObjectCode) -> None:
    """Writes all files into a folder beside, which takes its name when it is whole."""
    name = exported.name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            (beside / f"{name}.o").write_bytes(code.file.content)
            (beside / f"{name}.h").write_text(print_header(exported, ALIGNMENT), encoding="utf-8")
            (beside / f"{name}.json").write_text(exported.to_json(), encoding="utf-8")
            if exported.constants == "file":
                _write_constants(beside / f"{name}.bin", code)
            if exported.target == "wasm32":
                write_module(beside, exported, ALIGNMENT)
            beside.chmod(0o755)
            beside.rename(folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        problem = f"the folder {str(folder)!r} cannot be written: {error.strerror or error}."
        raise user_error(FileAccessError, WHERE, problem, fix="pass the path of a folder that can be made.") from error


def _write_constants(file: Path, code: ObjectCode) -> None:
    with file.open("wb") as written:
        for value, offset in code.printed.constants:
            written.write(bytes(offset - written.tell()))
            written.write(np.ascontiguousarray(value).tobytes())
        written.write(bytes(code.printed.constant_bytes - written.tell()))


# -- arguments ------------------------------------------------------------------------------------------------------


def _checked_folder(path: str | os.PathLike[str]) -> Path:
    try:
        folder = Path(path)
    except TypeError:
        problem = f"path is {path!r}, not a path."
        raise user_error(ArgumentTypeError, WHERE, problem, fix="pass the path of a folder.") from None
    if folder.exists() or folder.is_symlink():
        fix = "remove it, or pass another path."
        raise user_error(FileAccessError, WHERE, f"the folder {str(folder)!r} exists already.", fix=fix)
    return folder.absolute()


def _checked_name(name: str | None, fun: Callable[..., object]) -> str:
    found = name_of(fun) if name is None else name
    if not isinstance(found, str) or not _IDENTIFIER.fullmatch(found) or found in _WORDS.split():
        fix = 'pass name= with letters, digits and underscores, a letter first, such as name="step".'
        raise user_error(ArgumentError, WHERE, f"{found!r} is no name for a C function.", fix=fix)
    if found in _LIBRARY.split() or re.fullmatch(rf"({'|'.join(_MATHEMATICAL.split())})[fl]?", found):
        problem = f"the C library has a function {found!r}, which the exported one would take the place of."
        raise user_error(ArgumentError, WHERE, problem, fix=f'pass another name, such as name="{found}_array".')
    return found


def _check_target(target: str) -> None:
    if not isinstance(target, str) or target not in OBJECT_TARGETS:
        families = ", ".join(known_targets())
        fix = f"choose one of {', '.join(OBJECT_TARGETS)}; LLVM here makes code for {families}."
        raise user_error(ArgumentError, WHERE, f"nnc exports nothing for {target!r}.", fix=fix)
