"""Options of a compilation, in one frozen value, which is a part of the key of a program on disk.

Only this module reads the environment, once, when `Options.from_environment` is called, and changes it, while a library is loaded.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from nnc.base.machine import CPUS, processor
from nnc.errors import ArgumentError, ArgumentTypeError, user_error

if TYPE_CHECKING:
    from nnc.base.target import Target

CPU = "cpu"  # the only place that spells it
"""The kind and the name of the device whose memory Python reads.

Example:
    >>> nnp.ones(2).device == CPU
    True
"""
_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
ONEDNN, OPENBLAS = "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE"
_OLD_NAME = "DNNL_MAX_CPU_ISA"  # which oneDNN reads, too
# By the last of a processor's units in `CPUS`: the values of these variables that keep the libraries to its instructions.
_CAPS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "": ("SSE41", "Nehalem"), "fma": ("AVX2", "Haswell"), "avx512f": ("AVX512_CORE", "SkylakeX"),
    "avx512_bf16": ("AVX512_CORE_BF16", "SkylakeX"), "amx_bf16": ("AVX512_CORE_AMX", "SkylakeX"),
})  # fmt: skip
Allocator = Literal["portfolio", "article", "article-size"]
Precision = Literal["float32", "tf32", "bfloat16"]
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """The choices that lowering may make.

    Attributes:
        device: the name of the device on which the program runs.
        verify_passes: whether the graph is checked after every pass, and the memory plan once more (environment: NNC_VERIFY).
        memory_budget: the largest number of bytes that a call may allocate (NNC_MEMORY_BUDGET); None: any number.
        streams: the largest number of streams of a schedule; "auto": nnc chooses.
        donated: the inputs that the program may overwrite, by position.
        check_finite: whether every result is searched for NaN and infinities (`nnc.debug.check_finite`).
        guard: whether steps run one by one on memory with red zones and poison, which is checked after each (NNC_GUARD;
            nnc.run.guard).
        allocator: how memory is planned (NNC_ALLOCATOR): "portfolio" is best; "article" and "article-size" are the published
            algorithm of libnnc and its variant that takes large tensors first, for comparisons.
        autotune: whether several kernels of a step are measured, and the fastest is taken.
        cache_folder: where such findings, compiled kernels and lowered programs are kept (NNC_CACHE_DIR, else a folder in the
            user's cache); None: nowhere.
        kernel_threads: how many threads a kernel takes by itself (OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or OMP_NUM_THREADS, which
            tell NumPy's BLAS); None: all.
        native: whether programs become machine code (NNC_NATIVE=0: they run step by step from Python, with the same results).
        compact: whether kernels are fused only where that keeps nothing in memory for longer, as plans do by themselves where a
            budget demands it.
        contract: whether products that are only added are rounded once, with their sum.
        flush_denormals: whether denormal numbers count as 0; None: in steps that compute nothing in float64. LAPACK keeps them.
        precision: the precision of products of float32 on graphics processors (NNC_PRECISION): "float32", or the faster "tf32"
            (10 bits of mantissa) and "bfloat16" (7 bits), which add up in float32. The CPU computes all in float32.
        machine: the figures by which lowering and kernels choose; None: those of the device.
        keeps: the inputs whose packed forms, taken out by the pass `keep_packed`, the caller of the program keeps between
            calls.
        families: whether programs of one function at several sizes share machine code (NNC_FAMILIES=0: each is compiled for its
            sizes alone).
        sized: whether the graph is lowered for further sizes, too, so that nothing is computed now that depends on them.
        max_steps: the most iterations of loops of unknown length whose gradient is taken, so that their memory is known; None: any
            number.

    Example:
        >>> Options(memory_budget=parse_bytes("2GiB")).memory_budget
        2147483648
    """

    device: str = CPU
    verify_passes: bool = False
    memory_budget: int | None = None
    streams: int | str = "auto"
    donated: tuple[int, ...] = ()
    check_finite: bool = False
    guard: bool = False
    allocator: Allocator = "portfolio"
    autotune: bool = False
    cache_folder: Path | None = None
    kernel_threads: int | None = None
    native: bool = True
    compact: bool = False
    contract: bool = False
    flush_denormals: bool | None = None
    precision: Precision = "float32"
    machine: Target | None = None
    keeps: tuple[int, ...] = ()
    max_steps: int | None = None
    families: bool = True
    sized: bool = False

    def __post_init__(self) -> None:
        check_allocator(self.allocator, "allocator")
        check_precision(self.precision, "precision")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Options:
        """Reads the options from the environment; the others have their defaults.

        Args:
            environment: the variables; by default those of the process.

        Raises:
            ArgumentError: a variable has a value that cannot be read.

        Example:
            >>> Options.from_environment({"NNC_VERIFY": "1"}).verify_passes
            True
        """
        variables = os.environ if environment is None else environment
        _check_traceback(variables.get("NNC_TRACEBACK", ""))
        budget = variables.get("NNC_MEMORY_BUDGET")
        return cls(
            verify_passes=_flag("NNC_VERIFY", variables.get("NNC_VERIFY", "")),
            memory_budget=parse_bytes(budget, "NNC_MEMORY_BUDGET") if budget else None,
            allocator=check_allocator(variables.get("NNC_ALLOCATOR") or "portfolio", "NNC_ALLOCATOR"),
            cache_folder=_cache_folder(variables),
            kernel_threads=_kernel_threads(variables),
            guard=_flag("NNC_GUARD", variables.get("NNC_GUARD", "")),
            native=_flag("NNC_NATIVE", variables.get("NNC_NATIVE") or "1"),
            precision=check_precision(variables.get("NNC_PRECISION") or "float32", "NNC_PRECISION"),
            families=_flag("NNC_FAMILIES", variables.get("NNC_FAMILIES") or "1"),
        )

    def update(self, **changes: Any) -> Options:
        """These options with some fields replaced."""
        return replace(self, **changes)


@contextmanager
def variable_set(name: str, value: str, unless: Collection[str] = ()) -> Iterator[None]:
    """Sets a variable for a library that reads it while it is loaded; not where it, or one of others, is set already.

    Example:
        >>> with variable_set("GOMP_SPINCOUNT", "1000", unless=("OMP_WAIT_POLICY",)):
        ...     pass
    """
    if any(known in os.environ for known in (name, *unless)):
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def library_cap(variable: str) -> str | None:
    """Returns the value of a library's variable that keeps it to the instructions of NNC_CPU; None where nothing does, or the
    user has set the variable.

    Args:
        variable: `ONEDNN` or `OPENBLAS`.
    """
    units = CPUS.get(os.environ.get("NNC_CPU", ""))
    if units is None or variable in os.environ or (variable == ONEDNN and _OLD_NAME in os.environ):
        return None
    return _CAPS["".join(units[-1:])][(ONEDNN, OPENBLAS).index(variable)]


def openblas_kept() -> AbstractContextManager[None]:
    """Returns a block in which OpenBLAS, if it is loaded there, keeps to the instructions of NNC_CPU."""
    cap = library_cap(OPENBLAS)
    return nullcontext() if cap is None else variable_set(OPENBLAS, cap)


def chosen_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Returns LLVM's name of the processor that the CPU's code is made for (NNC_CPU); None: this one, also named "native".

    Args:
        cpuinfo: Linux's description of this processor.

    Raises:
        ArgumentError: nnc does not know the processor, or it has vector units that this one lacks.
    """
    name = os.environ.get("NNC_CPU", "")
    if name in ("", "native"):
        return None
    if name not in CPUS:
        fix = f"choose native, or one of {', '.join(CPUS)}."
        raise user_error(ArgumentError, "NNC_CPU", f"nnc knows no processor {name!r}.", fix=fix)
    here = processor(cpuinfo)
    missing = [unit for unit in CPUS[name] if unit not in here["vector units"].split(", ")]
    if missing or not here["system"].endswith(("x86_64", "AMD64")):
        problem = f"this processor cannot run code for {name}: it lacks {', '.join(missing) or 'the instructions'}."
        raise user_error(
            ArgumentError, "NNC_CPU", problem, fix="choose a processor with fewer vector units, or native."
        )
    return name


def chosen_loader() -> str:
    """Returns the loader of compiled code (NNC_LOADER): "own", nnc where it knows the form of object files, or "llvm".

    Raises:
        ArgumentError: the variable has another value.
    """
    return _one_of(("own", "llvm"), os.environ.get("NNC_LOADER") or "own", "NNC_LOADER", "loader of compiled code")


def chosen_wait() -> str:
    """Returns how threads wait for each other on Linux (NNC_WAIT): "futex", or, as on other systems, "condition".

    Raises:
        ArgumentError: the variable has another value.
    """
    return _one_of(("futex", "condition"), os.environ.get("NNC_WAIT") or "futex", "NNC_WAIT", "way of threads to wait")


def wants_full_tracebacks() -> bool:
    """Whether the environment asks for nnc's own frames in tracebacks (NNC_TRACEBACK=full); read anew for each error."""
    return os.environ.get("NNC_TRACEBACK", "").lower() == "full"


def collective_timeout() -> float:
    """Returns the seconds that a process waits in a collective for others (NNC_COLLECTIVE_TIMEOUT); 0: for ever.

    Raises:
        ArgumentError: the environment has no such number.
    """
    text = os.environ.get("NNC_COLLECTIVE_TIMEOUT", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        problem = f"{text!r} is no number of seconds."
        raise user_error(ArgumentError, "NNC_COLLECTIVE_TIMEOUT", problem, fix="give one, or 0 to wait for ever.")
    return seconds


def waits_in_each_call() -> bool:
    """Whether the environment asks that each call waits for its work on a device (NNC_SYNC=1); read anew for each call.

    Raises:
        ArgumentError: the variable is neither yes nor no.
    """
    # `get` takes three times as long where it is not set.
    return "NNC_SYNC" in os.environ and _flag("NNC_SYNC", os.environ["NNC_SYNC"])


def started_by_mpi() -> bool:
    """Whether `mpiexec` started this process, of MPICH, Intel MPI or Open MPI, or another starter of their protocols."""
    return any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"))


def parse_bytes(value: int | str, where: str = "memory_budget") -> int:
    """Parses a number of bytes: an int, or a text such as "2GiB", "500 MB" or "1.5k" (kB are 1000 bytes, KiB are 1024).

    Raises:
        ArgumentError: the text is no number of bytes, or it is negative.
        ArgumentTypeError: the value is no int or string.

    Example:
        >>> parse_bytes("1.5 KiB"), parse_bytes(10), parse_bytes("2MB")
        (1536, 10, 2000000)
    """
    fix = 'give a number of bytes such as 2_000_000_000, or a text such as "2GiB" or "500MB".'
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        problem = f"{value!r} is a {type(value).__name__}, not a number of bytes."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    if isinstance(value, int):
        if value < 0:
            raise user_error(ArgumentError, where, f"{value} bytes is negative.", fix=fix)
        return value
    match = re.fullmatch(r"\s*(\d+(?:_\d+)*(?:\.\d*)?)\s*([a-zA-Z]*)\s*", value)
    if match is None or match[2].lower() not in _UNITS:
        raise user_error(ArgumentError, where, f"{value!r} is no number of bytes.", fix=fix)
    number, unit = str(match[1]), _UNITS[match[2].lower()]
    return round(float(number) * unit) if "." in number else int(number) * unit


def check_allocator(name: str, where: str) -> Allocator:
    """Checks the name of a memory planner, and returns it.

    Raises:
        ArgumentError: there is no such planner.

    Example:
        >>> check_allocator("article", "allocator")
        'article'
    """
    return cast(Allocator, _one_of(get_args(Allocator), name, where, "memory planner"))


def check_precision(name: str, where: str) -> Precision:
    """Checks the name of a precision, and returns it.

    Raises:
        ArgumentError: there is no such precision.

    Example:
        >>> check_precision("tf32", "precision")
        'tf32'
    """
    return cast(Precision, _one_of(get_args(Precision), name, where, "precision of products"))


def _one_of(known: tuple[str, ...], name: str, where: str, what: str) -> str:
    if name not in known:
        fix = f"choose one of {', '.join(map(repr, known))}."
        raise user_error(ArgumentError, where, f"{name!r} is no {what}.", fix=fix)
    return name


def _cache_folder(variables: Mapping[str, str]) -> Path | None:
    """Returns the folder that the environment names, else where the system keeps caches of the user."""
    if variables.get("NNC_CACHE_DIR"):
        return Path(variables["NNC_CACHE_DIR"])
    if sys.platform == "win32":
        place = variables.get("LOCALAPPDATA")
        return Path(place, "nnc", "Cache") if place else None
    home = variables.get("HOME")
    if sys.platform == "darwin":
        return Path(home, "Library", "Caches", "nnc") if home else None
    place = variables.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return Path(place, "nnc") if place else None


def _kernel_threads(variables: Mapping[str, str]) -> int | None:
    """Returns the first number that the variables of the usual libraries give; those read them by themselves, so nothing is
    refused.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        match = re.match(r"\s*([1-9]\d*)", variables.get(name, ""))
        if match is not None:
            return int(match[1])
    return None


def _check_traceback(text: str) -> None:
    if text.lower() not in ("", "full", "user"):
        problem = f"{text!r} is neither full nor user."
        raise user_error(ArgumentError, "NNC_TRACEBACK", problem, fix="set NNC_TRACEBACK=full or NNC_TRACEBACK=user.")


def _flag(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise user_error(ArgumentError, name, f"{text!r} is neither yes nor no.", fix=f"set {name}=1 or {name}=0.")
