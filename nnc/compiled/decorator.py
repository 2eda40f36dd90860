"""`nnc.compile`: reads the options, has LLVM loaded by another process, and imports passes and kernels meanwhile.

So this file imports little: a first call that comes at once waits for LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from nnc.base.garbage import collection_paused
from nnc.base.later import later
from nnc.base.options import Options, Precision, parse_bytes
from nnc.compiled.toolchain import start_compiler
from nnc.device import CPU, find_device
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.errors import check_count
from nnc.errors.tracebacks import api_boundary
from nnc.trace.core.flat import check_callable
from nnc.typing import P, R

if TYPE_CHECKING:
    from nnc.compiled.compiled import Compiled
    from nnc.compiled.dims import Axes
    from nnc.compiled.signature import Names, Numbers

Fun = Callable[..., Any]
_make_compiled = later(f"{__package__}.compiled", "make_compiled")


class Settings(TypedDict, total=False):
    """The keyword arguments of `compile`."""

    static_argnums: Numbers
    static_argnames: Names
    donate_argnums: Numbers
    donate_argnames: Names
    device: str | None
    memory_budget: int | str | None
    streams: int | str
    autotune: bool
    contract: bool
    flush_denormals: bool | None
    precision: Precision | None
    max_traces: int | None
    dynamic_axes: Axes | None


@overload
def compile(fun: Callable[P, R], /, **settings: Unpack[Settings]) -> Compiled[P, R]: ...
@overload
def compile(fun: None = None, /, **settings: Unpack[Settings]) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
@api_boundary
def compile(
    fun: Fun | None = None,
    /,
    *,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    device: str | None = None,
    memory_budget: int | str | None = None,
    streams: int | str = "auto",
    autotune: bool = False,
    contract: bool = False,
    flush_denormals: bool | None = None,
    precision: Precision | None = None,
    max_traces: int | None = None,
    dynamic_axes: Axes | None = None,
) -> Any:
    """Compiles `fun`: it is traced once for each combination of shapes, dtypes, tree structures and static arguments.

    Args:
        fun: a pure function of pytrees of arrays; without it, a decorator is returned.
        static_argnums: positions of arguments that are hashable Python values, one trace for each value; leaves that
            are no arrays or numbers are static by themselves.
        static_argnames: names of static arguments.
        donate_argnums: positions of arguments whose memory the call may reuse; their arrays cannot be read afterwards.
        donate_argnames: names of arguments to donate.
        device: where the function runs, as `nnc.devices` lists it; its arguments are sent there. By default it runs
            where its array arguments are.
        memory_budget: bytes, or a text such as "2GiB", that the memory plan must fit into: values are recomputed
            rather than kept until it does.
        streams: how many threads may run steps that do not depend on each other, which takes more memory; "auto" is
            one, unless long steps that are independent pay for more. With 2 or more, one thread does nothing but wait for other
            processes (`nnc.distributed`).
        autotune: where several backends have a kernel, measure them on made-up data and keep the choice, also on disk
            (in NNC_CACHE_DIR).
        contract: products that are only added are rounded once, together with the sum (one instruction, as XLA has it),
            in float32 and float64: results differ from eager results in the last digit.
        flush_denormals: whether numbers below the smallest normal one count as 0, with which processors compute ten
            times as fast; by default in all that computes nothing in float64. Never in LAPACK's kernels.
        precision: the precision of products of float32 on graphics processors: "float32", or the faster "tf32" (10 bits of
            mantissa) and "bfloat16" (7 bits), which add up in float32; by default the environment's NNC_PRECISION, else
            "float32". The CPU computes in float32 in any case.
        max_traces: how many traces are allowed; without it, `nnc.errors.RetraceWarning` tells of the 8th, 16th and so
            on.
        dynamic_axes: names of sizes that vary from call to call, by parameter and axis: `{"x": {0: "batch"}}`, or
            `{0: nnc.dim("batch", max=64)}`. Axes of one name have one size in each call; other axes share no code. By
            default any size may vary; `{}`: none, so that programs of several sizes share no code. Of a parameter with several
            arrays each has these axes.

    Returns:
        a function of the same arguments with `lower`, `cache_info` and `cache_clear`.

    Raises:
        TraceError: `fun` asks for a value that is known only at run time, or max_traces is exceeded.
        MemoryBudgetError: no plan fits.
        ShapeError: axes of one name have two sizes, or a size is larger than it may be.
        UnsupportedError: there is no such device or option.

    Example:
        >>> @nnc.compile
        ... def f(x, y):
        ...     return (x + y) ** 2
        >>> f(10.0, 8.0)
        Array(324., dtype=float32)
    """
    if fun is None:
        return lambda f: compile(
            f, static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
            donate_argnames=donate_argnames, device=device, memory_budget=memory_budget, streams=streams, autotune=autotune,
            contract=contract, flush_denormals=flush_denormals, precision=precision, max_traces=max_traces,
            dynamic_axes=dynamic_axes,
        )  # fmt: skip
    check_callable(fun, "nnc.compile")
    place = None if device is None else find_device(device, "nnc.compile").name
    _check_streams(streams)
    for name, value in (("autotune", autotune), ("contract", contract), ("flush_denormals", flush_denormals or False)):
        if not isinstance(value, bool):
            raise user_error(
                ArgumentTypeError, "nnc.compile", f"{name} is {value!r}.", fix=f"pass {name}=True or False."
            )
    if max_traces is not None:
        check_count("nnc.compile", "max_traces", max_traces, "give a number of 1 or more.")
    options = Options.from_environment().update(
        device=place or CPU,
        streams=streams,
        autotune=autotune,
        contract=contract,
        flush_denormals=flush_denormals,
    )
    if memory_budget is not None:
        options = options.update(memory_budget=parse_bytes(memory_budget))
    if precision is not None:
        options = options.update(precision=precision)
    if options.native:
        start_compiler()
    roles = static_argnums, static_argnames, donate_argnums, donate_argnames
    with collection_paused():  # modules stay
        return _make_compiled(fun, roles, options, max_traces, place, dynamic_axes)


def _check_streams(streams: int | str) -> None:
    """Raises unless `streams` is "auto" or a number of 1 or more."""
    fix = 'use streams="auto", or a number of 1 or more.'
    if streams == "auto":
        return
    if isinstance(streams, bool) or not isinstance(streams, int):
        kind = ArgumentError if isinstance(streams, str) else ArgumentTypeError
        raise user_error(kind, "nnc.compile", f"streams is {streams!r}.", fix=fix)
    if streams < 1:
        raise user_error(ArgumentError, "nnc.compile", f"streams is {streams}, a program needs one.", fix=fix)
