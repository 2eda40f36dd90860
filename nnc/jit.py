"""`nnc.compile`: the one place where tracing, lowering and backends meet."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import numpy as np

from nnc import dtypes, tree
from nnc.array import Array
from nnc.backends.numpy_ref import choose_kernel
from nnc.commands.promote import as_operand, is_weak
from nnc.context import activity, get_context
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    NncError,
    TraceError,
    UnsupportedError,
    prune_traceback,
    user_error,
)
from nnc.graph import Graph, TensorSpec
from nnc.lower.pipeline import lower
from nnc.lower.program import Program
from nnc.lower.report import Cost, MemoryPlan
from nnc.options import Options, parse_bytes
from nnc.trace.captures import Snapshot, take_snapshot
from nnc.trace.flat import FlatFunction, FlatTree, check_callable, name_of
from nnc.trace.specs import argument_spec
from nnc.trace.staging import Staged, stage

Fun = Callable[..., Any]
Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


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
    max_traces: int | None = None,
) -> Any:
    """Compiles `fun`: it is traced once for each combination of shapes, dtypes, tree structures and static arguments.

    Args:     fun: a pure function of pytrees of arrays; without it, a decorator is returned. static_argnums, static_argnames:
              arguments that are hashable Python values, one trace for each value; leaves that are no arrays or numbers are
              static by themselves. donate_argnums, donate_argnames: arguments whose arrays are used up by the call.
              device: "cpu". memory_budget: bytes, or a text such as "2GiB", that the memory plan must fit into. streams:
              "auto" or 1. autotune: not offered by the reference backend. max_traces: how many traces are allowed.
    Returns:  a function of the same arguments with `lower`, `cache_info` and `cache_clear`.
    Raises:   TraceError: `fun` asks for a value that is known only at run time, or max_traces is exceeded.
              MemoryBudgetError: the plan does not fit. UnsupportedError: a device or option that is not here.
    Example:  >>> @nnc.compile
              ... def f(x, y):
              ...     return (x + y) ** 2
              >>> f(10.0, 8.0)
              Array(324., dtype=float32)
    """
    if fun is None:
        return lambda f: compile(
            f, static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
            donate_argnames=donate_argnames, device=device, memory_budget=memory_budget, streams=streams, autotune=autotune,
            max_traces=max_traces,
        )  # fmt: skip
    check_callable(fun, "nnc.compile")
    if device not in (None, "cpu"):
        raise user_error(
            UnsupportedError, "nnc.compile", f"there is no device {device!r}.", fix="use one of nnc.devices()."
        )
    if streams not in ("auto", 1):
        raise user_error(
            UnsupportedError,
            "nnc.compile",
            f"streams={streams!r}: programs run on one stream.",
            fix='use streams="auto" or 1.',
        )
    if autotune:
        raise user_error(
            UnsupportedError,
            "nnc.compile",
            "autotune=True: there is only one backend to choose from.",
            fix="drop autotune.",
        )
    if max_traces is not None and (not isinstance(max_traces, int) or max_traces < 1):
        raise user_error(ArgumentError, "nnc.compile", f"max_traces is {max_traces!r}.", fix="give a number of 1 or more.")
    options = Options.from_environment().update(streams=streams)
    if memory_budget is not None:
        options = options.update(memory_budget=parse_bytes(memory_budget))
    roles = _Roles.of(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Compiled(fun, options, roles, max_traces)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """How often a compiled function reused a program (`hits`) and made one (`misses`), and how many it holds (`size`)."""

    hits: int
    misses: int
    size: int


@dataclass(frozen=True, slots=True)
class _Roles:
    """Which arguments are static and which are donated, by position and by name."""

    static_nums: tuple[int, ...]
    static_names: tuple[str, ...]
    donate_nums: tuple[int, ...]
    donate_names: tuple[str, ...]

    @classmethod
    def of(
        cls, fun: Fun, static_nums: Numbers, static_names: Names, donate_nums: Numbers, donate_names: Names
    ) -> _Roles:
        parameters = _positional_parameters(fun)
        static = _resolve("static", fun, parameters, static_nums, static_names)
        donated = _resolve("donate", fun, parameters, donate_nums, donate_names)
        both = set(static[0]) & set(donated[0])
        if both:
            raise user_error(
                ArgumentError, "nnc.compile", f"arguments {sorted(both)} are both static and donated.",
                fix="donate only arguments that are arrays.",
            )  # fmt: skip
        return cls(*static, *donated)


def _positional_parameters(fun: Fun) -> list[str] | None:
    """Names of the parameters that may be passed by position; None where any number may be."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _resolve(
    role: str, fun: Fun, parameters: list[str] | None, nums: Numbers, names: Names
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names, each completed by the other."""
    positions = tuple(nums) if isinstance(nums, (tuple, list)) else () if nums is None else (nums,)
    keywords = tuple(names) if isinstance(names, (tuple, list)) else () if names is None else (names,)
    wrong = [i for i in positions if not isinstance(i, int)] + [name for name in keywords if not isinstance(name, str)]
    if wrong:
        raise user_error(
            ArgumentTypeError, "nnc.compile", f"{role}_argnums holds ints and {role}_argnames strings, not {wrong[0]!r}.",
            fix="name arguments by position in argnums, by name in argnames.",
        )  # fmt: skip
    if parameters is None:
        return positions, keywords
    for i in positions:
        if not -len(parameters) <= i < len(parameters):
            raise user_error(
                ArgumentError, "nnc.compile", f"{role}_argnums names argument {i}, but {name_of(fun)} takes {len(parameters)}.",
                operands={"parameters": ", ".join(parameters)}, fix="count from 0, or use names.",
            )  # fmt: skip
    keyword_only = {p.name for p in inspect.signature(fun).parameters.values() if p.kind is p.KEYWORD_ONLY}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(fun).parameters.values())
    for name in keywords:
        if name not in parameters and name not in keyword_only and not takes_any:
            raise user_error(
                ArgumentError, "nnc.compile", f"{role}_argnames names {name!r}, which {name_of(fun)} does not take.",
                operands={"parameters": ", ".join([*parameters, *sorted(keyword_only)])}, fix="name one of its parameters.",
            )  # fmt: skip
    fixed = {i % len(parameters) for i in positions} | {parameters.index(n) for n in keywords if n in parameters}
    return tuple(sorted(fixed)), tuple({*keywords, *(parameters[i] for i in fixed)})


@dataclass(frozen=True, slots=True)
class _Key:
    """What selects a program: everything but the values of the arrays."""

    treedef: Any
    specs: tuple[tuple[TensorSpec, bool], ...]
    static: tuple[tuple[str, Any], ...]
    settings: tuple[Any, ...]


@dataclass(slots=True)
class _Call:
    """One call, taken apart."""

    key: _Key
    flat: FlatFunction
    donated: list[Any]


class Compiled:
    """A compiled function; made by `nnc.compile`."""

    def __init__(self, fun: Fun, options: Options, roles: _Roles, max_traces: int | None) -> None:
        update_wrapper(self, fun)
        self._fun, self._options, self._roles, self._max_traces = fun, options, roles, max_traces
        self._entries: dict[_Key, tuple[Executable, Snapshot]] = {}
        self._last_key: _Key | None = None
        self._reason = "it has not been called yet"
        self._hits = self._misses = 0
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program for these arguments, which is made on the first call."""
        if get_context().staging is not None or _holds_tracer((args, kwargs)):
            return self._fun(*args, **kwargs)  # inside a trace the function is part of it
        try:
            call = self._take_apart(args, kwargs)
            executable = self._find(call)
            return executable._run(call.flat.leaves, call.donated)
        except NncError as error:
            raise prune_traceback(error) from None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _BoundMethod(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces for these arguments (arrays, numbers or ShapeDtypeStructs) without running."""
        call = self._take_apart(args, kwargs)
        return Lowered(*self._trace(call), self._options, call.flat)

    def cache_info(self) -> CacheInfo:
        """Hits, misses and size of the cache of programs."""
        return CacheInfo(self._hits, self._misses, len(self._entries))

    def cache_clear(self) -> None:
        """Forgets all programs."""
        with self._lock:
            self._entries.clear()
            self._last_key, self._reason = None, "its cache was cleared"

    def explain(self) -> str:
        """Why the last call traced or did not."""
        return f"{name_of(self._fun)}: {self._reason}"

    def __repr__(self) -> str:
        return f"<compiled {name_of(self._fun)}: {len(self._entries)} programs>"

    # -- finding or making a program -------------------------------------------------------------------------------

    def _take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        roles, count = self._roles, len(args)
        static_positions = {i % count for i in roles.static_nums if -count <= i < count}
        static = [(f"argument {i}", args[i]) for i in sorted(static_positions)]
        static += [(name, kwargs[name]) for name in sorted(kwargs) if name in roles.static_names]
        for name, value in static:
            tree.check_hashable("nnc.compile", name, value)
        dynamic = tuple(x for i, x in enumerate(args) if i not in static_positions)
        keywords = {name: x for name, x in kwargs.items() if name not in roles.static_names}

        def part(*values: Any, **named: Any) -> Any:
            rest = iter(values)
            whole = [args[i] if i in static_positions else next(rest) for i in range(count)]
            return self._fun(*whole, **named, **{n: kwargs[n] for n in kwargs if n in roles.static_names})

        part.__name__ = name_of(self._fun)
        flat = FlatFunction(part, dynamic, keywords)
        arguments = flat.arguments
        dynamic_places = set(arguments.where)
        settings = tuple(_setting(leaf) for i, leaf in enumerate(arguments.leaves) if i not in dynamic_places)
        leaves = [as_operand(leaf, name_of(self._fun), "an argument") for leaf in arguments.dynamic]
        specs = tuple((argument_spec(leaf), is_weak(leaf)) for leaf in leaves)
        key = _Key(arguments.treedef, specs, tuple((name, (type(value), value)) for name, value in static), settings)
        donated = [args[i] for i in roles.donate_nums if -count <= i < count]
        donated += [kwargs[name] for name in roles.donate_names if name in kwargs]
        return _Call(key, flat, donated)

    def _find(self, call: _Call) -> Executable:
        with self._lock:
            entry = self._entries.get(call.key)
            if entry is not None and entry[1].unchanged():
                self._hits += 1
                self._reason = "the last call reused a program"
                self._last_key = call.key
                return entry[0]
            reason = self._why(call.key, entry)
            if self._max_traces is not None and self._misses >= self._max_traces:
                raise user_error(
                    TraceError, name_of(self._fun), f"it would be traced again, though max_traces={self._max_traces}: {reason}.",
                    fix="call it with the same shapes, dtypes and static arguments, or raise max_traces.",
                )  # fmt: skip
            staged, graph_specs = self._trace(call)
            executable = Lowered(staged, graph_specs, self._options, call.flat).compile()
            self._entries[call.key] = executable, take_snapshot(self._fun)
            self._misses += 1
            self._reason, self._last_key = f"the last call traced, because {reason}", call.key
            return executable

    def _trace(self, call: _Call) -> tuple[Staged, tuple[TensorSpec, ...]]:
        specs = [spec for spec, _ in call.key.specs]
        with activity(f"tracing {name_of(self._fun)} for compile"):
            staged = stage(call.flat, specs, weak=[weak for _, weak in call.key.specs], name=name_of(self._fun))
        return staged, tuple(specs)

    def _why(self, key: _Key, entry: tuple[Executable, Snapshot] | None) -> str:
        if entry is not None:
            return "; ".join(entry[1].changes())
        if self._last_key is None:
            return "it was the first call"
        return _difference(self._last_key, key)


def _difference(old: _Key, new: _Key) -> str:
    """What differs between the keys of two calls, in words."""
    if old.treedef != new.treedef:
        return f"the structure of the arguments changed from {old.treedef} to {new.treedef}"
    lines = [
        f"{name} changed from {a!r} to {b!r}"
        for (name, (_, a)), (_, (_, b)) in zip(old.static, new.static, strict=False)
        if a != b
    ]
    paths = [path for path, _ in tree.flatten_with_path(tree.unflatten(new.treedef, [0] * new.treedef.num_leaves))]
    for path, (a, weak_a), (b, weak_b) in zip(paths, old.specs, new.specs, strict=False):
        if (a, weak_a) != (b, weak_b):
            lines.append(f"argument {path} changed from {_described(a, weak_a)} to {_described(b, weak_b)}")
    if old.settings != new.settings:
        lines.append(f"settings changed from {old.settings} to {new.settings}")
    return "; ".join(lines) or "the static arguments changed"


def _described(spec: TensorSpec, weak: bool) -> str:
    return f"{spec} (a Python number)" if weak else str(spec)


class _Identity:
    """A leaf without a hash, compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def _setting(leaf: Any) -> Any:
    """A leaf that is no array, as part of a key."""
    try:
        hash(leaf)
    except TypeError:
        return _Identity(leaf)
    return (type(leaf), leaf)


def _holds_tracer(value: Any) -> bool:
    return any(getattr(leaf, "owner", None) is not None for leaf in tree.leaves(value))


class _BoundMethod:
    """A compiled method of an object."""

    def __init__(self, compiled: Compiled, instance: Any) -> None:
        self._compiled, self._instance = compiled, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method."""
        return self._compiled(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces for these arguments without running."""
        return self._compiled.lower(self._instance, *args, **kwargs)


# -- stages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lowered:
    """A traced function: its graph, not yet planned."""

    _staged: Staged
    _specs: tuple[TensorSpec, ...]
    _options: Options
    _flat: FlatFunction

    @property
    def graph(self) -> Graph:
        """The symbolic graph. Its last inputs are the arrays that the function captures."""
        return self._staged.graph

    def as_text(self) -> str:
        """The graph as text."""
        return str(self._staged.graph)

    def compile(self) -> Executable:
        """Plans memory and binds kernels."""
        program = lower(self._staged.graph, self._options, choose_kernel)
        if self._flat.out is None:
            raise ArgumentError("nothing was traced")
        return Executable(program, self._staged, self._flat.arguments.skeleton(), self._flat.out.skeleton())


@dataclass(frozen=True, slots=True)
class Executable:
    """A program ready to run: everything about it is known before it does."""

    _program: Program
    _staged: Staged
    _arguments: FlatTree
    _out: FlatTree

    @property
    def memory_plan(self) -> MemoryPlan:
        """Where each tensor lies and how many bytes a call takes."""
        return self._program.memory_plan

    @property
    def cost(self) -> Cost:
        """Floating-point operations and bytes, node by node."""
        return self._program.cost

    def as_text(self) -> str:
        """The program as text: steps with their kernels and buffers."""
        return self._program.as_text()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs on arguments of the structure, shapes and dtypes that were lowered."""
        given = FlatTree((args, kwargs))
        if given.treedef != self._arguments.treedef:
            raise user_error(
                ArgumentTypeError, "executable", "the arguments have another structure than those lowered.",
                operands={"lowered": self._arguments.treedef, "given": given.treedef}, fix="lower again for these arguments.",
            )  # fmt: skip
        for path, leaf, spec in zip(given.paths(), given.dynamic, self._staged.graph.input_specs, strict=False):
            have = argument_spec(leaf)
            if not dtypes.is_scalar(leaf) and have != spec:
                raise user_error(
                    ArgumentTypeError, "executable", f"argument {path} differs from the one lowered.",
                    operands={"lowered": spec, "given": have}, fix="lower again for these arguments.",
                )  # fmt: skip
        return self._run(given.dynamic, [])

    def _run(self, leaves: Sequence[Any], donated: Sequence[Any]) -> Any:
        specs = self._staged.graph.input_specs
        inputs = [_data(leaf, spec) for leaf, spec in zip(leaves, specs, strict=False)]
        inputs += [value.data for value in self._staged.captured]
        outputs = [Array(x) for x in self._program.run(inputs)]
        for value in donated:
            for leaf in tree.leaves(value):
                if isinstance(leaf, Array):
                    leaf.delete()
        return self._out.build(outputs)


def _data(leaf: Any, spec: TensorSpec) -> np.ndarray[Any, Any]:
    return leaf.data if isinstance(leaf, Array) else np.asarray(leaf, spec.dtype)
