"""Compiled functions: select the program for a call's arguments; executable.py makes it, joining tracing, lowering and backends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial, update_wrapper, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, Protocol, Self, overload

from nnc import tree
from nnc.array.array import as_value
from nnc.array.promotion_watch import promotion_watch
from nnc.base.bounded import BoundedCache
from nnc.base.context import AT_REST, get_context
from nnc.base.fork import new_rlock
from nnc.base.later import later
from nnc.base.options import Options
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
from nnc.compiled.signature import Call, CallPattern, Key, Names, Numbers, Signature, parameter_names, setting
from nnc.compiled.toolchain import toolchain
from nnc.errors import NncError, TraceError, user_error
from nnc.errors.tracebacks import api_boundary, cut_traceback, leave
from nnc.run.background import deferring
from nnc.run.store.stored import prepare
from nnc.trace.core.compiled_function import Arguments, CompiledFunction, Settings
from nnc.trace.core.flat import call_function, name_of
from nnc.trace.core.tracer import Tracer
from nnc.typing import P, Q, R, R_co, S

if TYPE_CHECKING:
    from nnc.compiled.dims import Axes, DynamicAxes
    from nnc.compiled.families import Families, Family
    from nnc.compiled.pieces import Pieces

Fun = Callable[..., Any]
_make_pieces = later(f"{__package__}.pieces", "Pieces")
_make_families = later(f"{__package__}.families", "Families")
_read_axes = later(f"{__package__}.dims", "read_axes")


class CacheInfo(NamedTuple):
    """Counts of a compiled function's calls that reused a program (`hits`) or made one (`misses`), of its programs (`size`), and of
    their `families`: programs of one family share machine code, at several sizes.
    """

    hits: int
    misses: int
    size: int
    families: int


class FastPath(NamedTuple):
    """The program for calls of one pattern, and the function that runs it."""

    executable: Executable
    run: Run


def make_compiled(
    fun: Fun,
    roles: tuple[Numbers, Names, Numbers, Names],
    options: Options,
    max_traces: int | None,
    place: str | None,
    dynamic_axes: Axes | None,
) -> Compiled[Any, Any]:
    """Returns the compiled function. Its kernels are imported here, so that the first call need not wait for them.

    Args:
        roles: static_argnums, static_argnames, donate_argnums and donate_argnames of `compile`.
        place: the device that the user chose; None: where the arguments are.
        dynamic_axes: names of sizes that vary, as given to `compile`.
    """
    signature = Signature.of(fun, *roles)
    axes = None if dynamic_axes is None else _read_axes(dynamic_axes, fun, parameter_names(fun))
    if axes is not None and not axes.named:
        options = options.update(families=False)
    toolchain(options.device)
    if options.cache_folder is not None:
        prepare(options.device)
    return Compiled(signature, options, max_traces, place, axes)


_REUSED = "the last call reused a program"
_UNCALLED = "it has not been called yet"
_TRANSFORMED = "it has not been called yet, but transforms of it were made, which are explained by themselves"
_IN_PIECES = "the last call was within a transform that is not compiled; the function's share of it ran as programs"
_UNCOMPILED = "the last call was within a transform that is not compiled, which ran its commands one by one: compile the transform"
_SHORTCUTS = 256  # of one function: patterns of calls that have a fast path


class Compiled(CompiledFunction, Generic[P, R_co]):
    """A compiled function; made by `nnc.compile`."""

    def __init__(
        self,
        signature: Signature,
        options: Options,
        max_traces: int | None,
        device: str | None = None,
        axes: DynamicAxes | None = None,
    ) -> None:
        update_wrapper(self, signature.fun)
        self.fun = signature.fun
        self._signature, self._options, self._max_traces = signature, options, max_traces
        self._device = device  # None: where the arguments are
        self._entries: dict[Key, Executable] = {}
        self._checked: dict[Key, Executable] = {}  # programs for calls under nnc.debug.check_finite
        self._alike: BoundedCache[tuple[Key, tuple[type, ...]], FastPath] = BoundedCache(_SHORTCUTS)
        # of the last call, if that reused a program; the next call tries it first
        self._fast_path: FastPath | None = None
        self._pieces: dict[Key, Pieces] = {}  # for calls within transforms that are not compiled
        self._transformed: BoundedCache[Any, Compiled[..., Any]] = BoundedCache(_SHORTCUTS)
        self._freed = FreedNumbers()
        self._axes = axes
        self._families: Families | None = None  # made for the second program
        self._family: Family | None = None  # of the program that the last call made
        self._last_key: Key | None = None  # of the last call, as it was given
        self._last: Executable | None = None
        # a function words it when it is asked for: naming arguments takes longer than making a program
        self._reason: str | Callable[[], str] = _UNCALLED
        self._hits = self._misses = self._traces = 0
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
                pieces, found = (None, call) if context.modes or context.axes else self._find_pieces(call)
                result = NotImplemented if pieces is None else pieces.call(found.arguments.dynamic)
                if result is not NotImplemented:
                    self._reason = _IN_PIECES
                    return result
                self._reason = _UNCOMPILED
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

    @property
    def signature(self) -> Signature:
        """The function's parameters and their roles."""
        return self._signature

    @property
    def options(self) -> Options:
        """The options of `nnc.compile`."""
        return self._options

    def transformed(
        self, transform: Callable[..., Fun], settings: Settings, arguments: Arguments = "same"
    ) -> Compiled[..., Any]:
        """Returns a transform of the function, compiled with the same options; no argument is donated.

        Arguments by name stay so, since transforms tell them from others.
        """
        leaves, structure = tree.flatten(settings)
        key = transform, structure, tuple(map(setting, leaves))
        made = self._transformed.find(key)
        if made is None:
            fun, axes = transform(self.fun, *settings[0], **settings[1]), self._axes if arguments == "same" else None
            signature = self._signature._replace(fun=fun, movable=(), donate_nums=(), donate_names=())
            made = Compiled(signature, self._options, self._max_traces, self._device, axes)
            self._transformed.keep(key, made)
            if self._reason is _UNCALLED:
                self._reason = _TRANSFORMED
        return made

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
        return CacheInfo(self._hits, self._misses, len(self._entries), self._count_families())

    def _count_families(self) -> int:
        return len(self._entries) if self._families is None else len(self._families)

    def cache_clear(self) -> None:
        """Forgets all programs."""
        with self._lock:
            self._entries.clear()
            self._checked.clear()
            self._alike.clear()
            self._fast_path = None
            self._hits = self._misses = self._traces = 0
            self._freed.clear()
            self._transformed.clear()
            self._pieces.clear()
            self._families = None
            self._last_key, self._last, self._reason, self._family = None, None, "its cache was cleared", None

    def explain(self) -> str:
        """Explains why the last call traced, or why it did not; why new sizes of its family are lowered or printed each; how a
        device runs its loops and branches, and which of its commands the device has no kernels for.
        """
        with self._lock:
            entry, family = self._last, self._family
            reason = self._reason if isinstance(self._reason, str) else self._reason()
        text = f"{name_of(self._signature.fun)}: {reason}"
        if family is not None and family.members > 2:  # the second size shares no code yet
            text += f"; it is one of {family.members} programs of family {family.number}, which share their code"
            for what, problem in family.problems.items():
                text += f"; each new size is {what}: {problem}"
        if entry is None:
            return text
        if entry.loops:
            text += f"; on {entry.options.device} {', '.join(entry.loops)}"
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
        settings = self._signature, self._options, self._max_traces, self._device, self._axes
        return name if found is self else (Compiled, settings)

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
                self._reason, self._last_key, self._last, self._family = _REUSED, given.key, entry, None
                if self._origin is not None:
                    note_reuse(self._origin)
                    self._origin = None
                if watch is not None and (self, call.key) not in watch.traced:
                    Lowered.of(call, self._options)  # traced again, which names the lines that widen
                    watch.traced.add((self, call.key))
                return entry, call
            why = self._why(given.key, entry)
            options = self._options.update(check_finite=checks, device=call.key.device)
            if self._families is None and (entries or self._axes is not None):
                self._families = _make_families(self.fun, self._axes, entries, self._options)
            kin = self._families.find(given.key, options) if self._families is not None and not checks else None
            size = kin.replay(call) if kin is not None and call is given and watch is None else None
            if size is None and self._max_traces is not None and self._traces >= self._max_traces and not checks:
                problem = f"it would be traced again, though max_traces={self._max_traces}: {describe(why())}."
                fix = "call it with the same shapes, dtypes and static arguments, or raise max_traces."
                raise user_error(TraceError, name_of(self._signature.fun), problem, fix=fix)
            if size is not None and kin is not None:
                with deferring():
                    executable = size.replay.lowered.replayed(size, call, kin)
            else:
                with deferring(), prefetching(call, options) as prefetch:
                    call, lowered = self._freed.trace(given, self._device, partial(Lowered.of, options=options))
                    if lowered.captures_tracers:
                        return None, given
                    executable = lowered.compile(prefetch, kin)
                    self._traces += not checks
                    if kin is not None and call is given:
                        kin.note_trace(call, lowered)
            if watch is not None:
                watch.traced.add((self, call.key))
            self._misses += not checks
            if size is None and is_due(self._traces) and self._max_traces is None and not checks:
                nearby = nearest(self._signature.fun, entries, call.key) if entry is None and entries else why()
            else:
                nearby = []
            self._family = self._families.add(kin, executable) if self._families is not None and not checks else None
            entries[call.key] = executable
            what = "traced" if size is None else "made a program without a trace"
            self._reason, self._last_key = (lambda: f"the last call {what}, because {describe(why())}"), given.key
            self._last = executable
        if nearby:
            warn_of_traces(name_of(self._signature.fun), self._traces, self._hits + self._misses, nearby)
        return executable, call

    def _find_pieces(self, given: Call) -> tuple[Pieces | None, Call]:
        """Returns the programs for a call within a transform that is not compiled, and the call as they take it. There are none
        where the function captures values of an enclosing trace.
        """
        with self._lock:
            call, pieces = given, self._pieces.get(given.key)
            if pieces is None or not pieces.snapshot.unchanged():
                call = self._freed.free(given, self._device)
                pieces = self._pieces.get(call.key)
            if pieces is None or not pieces.snapshot.unchanged():
                options = self._options.update(device=call.key.device, memory_budget=Options().memory_budget)
                call, lowered = self._freed.trace(given, self._device, partial(Lowered.of, options=options))
                if lowered.captures_tracers:
                    return None, given
                pieces = self._pieces[call.key] = _make_pieces(lowered, partial(self._compile_piece, options))
        return pieces, call

    def _compile_piece(self, options: Options, fun: Fun) -> Compiled[..., Any]:
        fun.__name__ = f"{fun.__name__} of {name_of(self.fun)}"
        return Compiled(Signature.of(fun, None, None, None, None), options, None, self._device)

    def _why(self, key: Key, entry: Executable | None) -> Callable[[], list[Change]]:
        """Returns a function that says why there is no program for a call."""
        last = self._last_key
        if entry is not None:
            known = captured_changes(entry.snapshot.changes())
        elif last is None:
            known = [Change("it was the first call", "")]
        elif key == last:
            known = [Change("nnc.debug.check_finite was switched on or off", "")]
        else:
            return partial(differences, self._signature.fun, last, key)
        return lambda: known


def _run_eagerly(call: Call) -> Any:
    """Runs a call command by command; arguments and results are arrays, as for the program."""
    flat = call.flat_function()
    outputs = flat(*map(as_value, call.arguments.dynamic))
    return flat.build_result(list(map(as_value, outputs)))


class CallRecorder(Protocol):
    """A dynamic graph, within which a compiled function is one operation (nnc.compiled.dynamic)."""

    def evaluate(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function within the graph."""


def recorder_of(leaves: Iterable[Any]) -> CallRecorder | None:
    """Returns the dynamic graph whose variables are among `leaves`, if they hold no other traced values."""
    owners = {id(leaf.owner): leaf.owner for leaf in leaves if isinstance(leaf, Tracer)}
    owner = next(iter(owners.values())) if len(owners) == 1 else None
    return owner if getattr(owner, "is_recorder", False) else None


class BoundMethod(CompiledFunction, Generic[P, R_co]):
    """A compiled method of an object."""

    def __init__(self, compiled: Compiled[..., Any], instance: Any) -> None:
        self.compiled, self.instance = compiled, instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the method."""
        return self.compiled(self.instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def transformed(self, transform: Callable[..., Fun], settings: Settings, arguments: Arguments = "same") -> Fun:
        """Returns a transform of the method, compiled with the same options, for this object."""
        made = self.compiled.transformed(_of_instance, ((transform, settings), {}), arguments)
        return BoundMethod(made, self.instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces for these arguments without running."""
        return self.compiled.lower(self.instance, *args, **kwargs)


def _of_instance(fun: Fun, transform: Callable[..., Fun], settings: Settings) -> Fun:
    """Returns a function of an object and the arguments of a transform of its method `fun`."""

    @wraps(fun)
    def call(instance: Any, *args: Any, **kwargs: Any) -> Any:
        return transform(MethodType(fun, instance), *settings[0], **settings[1])(*args, **kwargs)

    return call
