"""`nnc.compile`: selects the program for a call's arguments; executable.py makes it, joining tracing, lowering and backends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, NamedTuple, Self, TypedDict, Unpack, overload

from nnc.array.array import as_value
from nnc.base.bounded import BoundedCache
from nnc.base.context import AT_REST, get_context
from nnc.base.fork import new_rlock
from nnc.base.options import Options, Precision, parse_bytes
from nnc.commands.promotion import promotion_watch
from nnc.compiled.executable import Executable, Lowered, Run, prefetching
from nnc.compiled.freed_numbers import FreedNumbers
from nnc.compiled.retraces import (
    Change,
    captured_changes,
    describe,
    differences,
    is_due,
    nearest,
    note_first_trace,
    note_reuse,
    warn_of_traces,
)
from nnc.compiled.signature import Call, CallPattern, Key, Names, Numbers, Signature
from nnc.compiled.toolchain import start_compiler, toolchain
from nnc.device import CPU, find_device
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, TraceError, user_error
from nnc.errors.errors import check_count
from nnc.errors.tracebacks import api_boundary, cut_traceback, leave
from nnc.run.background import deferring
from nnc.run.store.stored import prepare
from nnc.trace.core.flat import call_function, check_callable, name_of
from nnc.trace.core.tracer import Tracer
from nnc.typing import P, Q, R, R_co, S

Fun = Callable[..., Any]


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

    Returns:
        a function of the same arguments with `lower`, `cache_info` and `cache_clear`.

    Raises:
        TraceError: `fun` asks for a value that is known only at run time, or max_traces is exceeded.
        MemoryBudgetError: no plan fits.
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
    signature = Signature.of(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    if options.native:
        start_compiler()
    toolchain(options.device)  # imported here, so that the first call need not wait for it
    if options.cache_folder is not None:
        prepare(options.device)
    return Compiled(signature, options, max_traces, place)


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


class CacheInfo(NamedTuple):
    """Counts of a compiled function's calls that reused a program (`hits`) or made one (`misses`), and of its programs (`size`)."""

    hits: int
    misses: int
    size: int


class FastPath(NamedTuple):
    """The program for calls of one pattern, and the function that runs it."""

    executable: Executable
    run: Run


_REUSED = "the last call reused a program"
_SHORTCUTS = 256  # of one function: patterns of calls that have a fast path


class Compiled(Generic[P, R_co]):
    """A compiled function; made by `nnc.compile`."""

    def __init__(
        self, signature: Signature, options: Options, max_traces: int | None, device: str | None = None
    ) -> None:
        update_wrapper(self, signature.fun)
        self.fun = signature.fun
        self._signature, self._options, self._max_traces = signature, options, max_traces
        self._device = device  # None: where the arguments are
        self._entries: dict[Key, Executable] = {}
        self._checked: dict[Key, Executable] = {}  # programs for calls under nnc.debug.check_finite
        self._alike: BoundedCache[tuple[Key, tuple[type, ...]], FastPath] = BoundedCache(_SHORTCUTS)
        self._fast_path: FastPath | None = (
            None  # of the last call, if that reused a program; the next call tries it first
        )
        self._freed = FreedNumbers()
        self._last_key: Key | None = None  # of the last call, as it was given
        self._last: Executable | None = None
        self._reason = "it has not been called yet"
        self._hits = self._misses = 0
        self._origin: Any = None  # set while the function was called only once (nnc.compiled.retraces)
        self._lock = new_rlock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Runs the program for these arguments; the first call makes the program."""
        context = get_context()
        try:
            if context.staging is not None:  # inside a trace the function is part of it
                return call_function(self.fun, args, kwargs)
            fast_path = self._fast_path
            if fast_path is not None and context is AT_REST:
                if kwargs:
                    args, kwargs = self._signature.by_position(args, kwargs)  # type: ignore[assignment]
                result = fast_path.run(args, kwargs)
                if result is not NotImplemented:
                    self._hits += 1
                    return result
            call = self._signature.take_apart(args, kwargs, self._device)
            if "eager" in context.modes:
                return _run_eagerly(call)
            if call.is_traced:
                recorder = recorder_of(call.arguments.dynamic)
                executable = None
                if recorder is not None:
                    return recorder.evaluate(self, *args, **kwargs)
            else:
                is_first = call.key not in self._entries
                with deferring() if is_first else nullcontext():
                    executable, found = self._find(call)
                    if executable is not None:
                        if is_first and self._misses == 1:
                            self._origin = note_first_trace(name_of(self.fun), self.fun)
                        is_usual = found is call and not context.modes
                        if self._reason is _REUSED and is_usual:  # the first call may also be the last one
                            self._note_usual(call, executable)
                        return executable.run(found.arguments.dynamic)
            return call_function(self.fun, args, kwargs)
        except BaseException as error:
            other = leave(error, self.fun, name_of(self.fun), args, kwargs)
            if other is None:
                raise
            try:
                raise other from None
            except NncError as worded:
                cut_traceback(worded)
                raise

    def find(self, *args: Any, **kwargs: Any) -> tuple[Executable | None, list[Any]]:
        """Returns the program for these arguments, and their dynamic leaves; None in place of the program where the function
        captures values of an enclosing trace.
        """
        executable, call = self._find(self._signature.take_apart(args, kwargs, self._device))
        return executable, call.arguments.dynamic

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: Compiled[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> BoundMethod[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundMethod(self, instance)

    @api_boundary
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces for these arguments (arrays, numbers or ShapeDtypeStructs) without running."""
        call = self._signature.take_apart(args, kwargs, self._device)
        return Lowered.of(call, self._options.update(device=call.key.device))

    def _note_usual(self, call: Call, executable: Executable) -> None:
        """Makes a fast path for calls of this call's pattern."""
        form = call.key, tuple(map(type, call.arguments.leaves))
        fast_path = self._alike.find(form)
        if fast_path is None or fast_path.executable is not executable:
            pattern = CallPattern.of(call)
            if pattern is None:
                return
            fast_path = self._alike.keep(form, FastPath(executable, executable.runner(pattern)))
        self._fast_path = fast_path

    def cache_info(self) -> CacheInfo:
        """Hits, misses and size of the cache of programs."""
        return CacheInfo(self._hits, self._misses, len(self._entries))

    def cache_clear(self) -> None:
        """Forgets all programs."""
        with self._lock:
            self._entries.clear()
            self._checked.clear()
            self._alike.clear()
            self._fast_path = None
            self._hits = self._misses = 0
            self._freed.clear()
            self._last_key, self._last, self._reason = None, None, "its cache was cleared"

    def explain(self) -> str:
        """Explains why the last call traced, or why it did not, and which of its commands a device has no kernels for."""
        with self._lock:
            entry = self._last
        text = f"{name_of(self._signature.fun)}: {self._reason}"
        if entry is None or not entry.unprinted:
            return text
        for where, counts in sorted(entry.unprinted.items()):
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
            text += f"; {entry.options.device} runs {where}: {listed}"
        return text

    def __repr__(self) -> str:
        return f"<compiled {name_of(self._signature.fun)}: {len(self._entries)} programs>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Returns the form for another process, or for a copy: the function, without programs; of a decorated function its name."""
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        name = getattr(self, "__qualname__", "")
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Compiled, (self._signature, self._options, self._max_traces, self._device))

    def _find(self, given: Call) -> tuple[Executable | None, Call]:
        """Returns the program for a call, made where there is none, and the call as the program takes it: with other operands
        where numbers in fields have changed. There is no program where the function captures values of an enclosing trace.
        """
        call = given
        checks, watch = "check_finite" in get_context().modes, promotion_watch()
        entries = self._checked if checks else self._entries
        with self._lock:
            self._fast_path = None
            entry = entries.get(call.key)
            if entry is None or not entry.snapshot.unchanged():
                call = self._freed.free(given, self._device)
                entry = entries.get(call.key, entry)
            if entry is not None and entry.snapshot.unchanged():
                self._hits += 1
                self._reason, self._last_key, self._last = _REUSED, given.key, entry
                if self._origin is not None:
                    note_reuse(self._origin)
                    self._origin = None
                if watch is not None and (self, call.key) not in watch.traced:
                    Lowered.of(call, self._options)  # traced again, which names the lines that widen
                    watch.traced.add((self, call.key))
                return entry, call
            changes = self._why(given.key, entry)
            if self._max_traces is not None and self._misses >= self._max_traces and not checks:
                problem = f"it would be traced again, though max_traces={self._max_traces}: {describe(changes)}."
                fix = "call it with the same shapes, dtypes and static arguments, or raise max_traces."
                raise user_error(TraceError, name_of(self._signature.fun), problem, fix=fix)
            options = self._options.update(check_finite=checks, device=call.key.device)
            with deferring(), prefetching(call, options) as prefetch:
                call, lowered = self._freed.trace(given, self._device, partial(Lowered.of, options=options))
                if lowered.captures_tracers:
                    return None, given
                executable = lowered.compile(prefetch)
            if watch is not None:
                watch.traced.add((self, call.key))
            self._misses += not checks
            if is_due(self._misses) and self._max_traces is None and not checks:
                nearby = nearest(self._signature.fun, entries, call.key) if entry is None and entries else changes
            else:
                nearby = []
            entries[call.key] = executable
            self._reason, self._last_key = f"the last call traced, because {describe(changes)}", given.key
            self._last = executable
        if nearby:
            warn_of_traces(name_of(self._signature.fun), self._misses, self._hits + self._misses, nearby)
        return executable, call

    def _why(self, key: Key, entry: Executable | None) -> list[Change]:
        if entry is not None:
            return captured_changes(entry.snapshot.changes())
        if self._last_key is None:
            return [Change("it was the first call", "")]
        if key == self._last_key:
            return [Change("nnc.debug.check_finite was switched on or off", "")]
        return differences(self._signature.fun, self._last_key, key)


def _run_eagerly(call: Call) -> Any:
    """Runs a call command by command; arguments and results are arrays, as for the program."""
    flat = call.flat_function()
    outputs = flat(*map(as_value, call.arguments.dynamic))
    return flat.build_result(list(map(as_value, outputs)))


def recorder_of(leaves: Iterable[Any]) -> Any:
    """Returns the dynamic graph whose variables are among `leaves`, if they hold no other traced values."""
    owners = {id(leaf.owner): leaf.owner for leaf in leaves if isinstance(leaf, Tracer)}
    owner = next(iter(owners.values())) if len(owners) == 1 else None
    return owner if getattr(owner, "is_recorder", False) else None


class BoundMethod(Generic[P, R_co]):
    """A compiled method of an object."""

    def __init__(self, compiled: Compiled[..., Any], instance: Any) -> None:
        self.compiled, self.instance = compiled, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the method."""
        return self.compiled(self.instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces for these arguments without running."""
        return self.compiled.lower(self.instance, *args, **kwargs)
