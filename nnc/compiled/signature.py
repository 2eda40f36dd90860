"""Splits calls of compiled functions into static, donated and dynamic arguments, and makes the key that selects a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.array.device_array import DeviceArray
from nnc.array.promote import as_operand, is_weak
from nnc.base import dtypes
from nnc.base.context import TracedCall, get_context
from nnc.device import CPU
from nnc.errors import ArgumentError, ArgumentTypeError, DeviceError, NncError, user_error
from nnc.graph import TensorSpec
from nnc.trace.core.flat import (
    FlatFunction,
    FlatTree,
    argument_path,
    argument_paths,
    call_function,
    name_of,
    parameter_name,
    read_leaf,
)
from nnc.trace.core.pattern import MISMATCHES, Take, make_pattern
from nnc.trace.core.specs import argument_spec
from nnc.trace.core.tracer import Tracer

Fun = Callable[..., Any]
Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


class Key(NamedTuple):
    """The key of a program: everything about a call but the values of its arrays.

    `leaves` has (spec, weakness) for each array, a `setting` for other leaves of the dynamic arguments;
    `positions` are the positions of static arguments. The program runs on the `device`.
    """

    treedef: Any
    leaves: tuple[Any, ...]
    static: tuple[tuple[str, Any], ...] = ()
    positions: frozenset[int] = frozenset()
    device: str = CPU

    def specs(self) -> list[tuple[TensorSpec, dtypes.Weakness]]:
        """Returns the spec of each array among the leaves, and whether its dtype is weak."""
        return [leaf for leaf in self.leaves if is_spec(leaf)]

    def is_served_by(self, other: Key) -> bool:
        """Whether a program for `other` takes these arguments: the keys differ at most in which leaves are weak."""
        return (
            self.treedef == other.treedef
            and self.device == other.device
            and all(
                x == y or (is_spec(x) and is_spec(y) and shown_spec(*x) == shown_spec(*y))
                for x, y in zip(self.leaves, other.leaves, strict=True)
            )
        )

    def paths(self, fun: Fun) -> list[str]:
        """Returns the path of each leaf, from the names of the function's parameters: `params["w"]`."""
        return argument_paths(self.treedef, partial(parameter_name, fun, left_out=self.positions))

    def path(self, path: Sequence[str], fun: Fun) -> str:
        """Returns a path within the arguments, from the names of the function's parameters."""
        return argument_path(path, partial(parameter_name, fun, left_out=self.positions))


@dataclass(slots=True)
class Call(TracedCall):
    """One call: its arrays, and its other arguments.

    `has_freed_numbers` says that numbers in fields of dataclasses are operands (nnc.compiled.freed_numbers), `is_running` that the
    function is being traced with them.
    """

    key: Key
    signature: Signature
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: FlatTree
    has_freed_numbers: bool = False
    is_running: bool = False

    def argument(self, position: int, count: int) -> tuple[str, Any]:
        """Returns the path and value of the argument that is an input of the trace; an empty path where it is captured."""
        where = self.arguments.where
        if count > len(where):
            return "", None
        place = where[position]
        return self.key.paths(self.signature.fun)[place], self.arguments.leaves[place]

    def flat_function(self) -> FlatFunction:
        """Returns the function of the call's dynamic leaves, with its static arguments filled in."""
        fun, args, fixed, positions = self.signature.fun, self.args, self.signature.static_names, self.key.positions
        settings = {name: x for name, x in self.kwargs.items() if name in fixed}

        def part(*values: Any, **named: Any) -> Any:
            rest = iter(values)
            given = [x if i in positions else next(rest) for i, x in enumerate(args)]
            self.is_running = True
            try:
                return call_function(fun, given, {**named, **settings})
            finally:
                self.is_running = False

        part.__name__ = name_of(fun)
        return FlatFunction(part, self.arguments)

    @property
    def is_traced(self) -> bool:
        """Whether an argument is a value of an enclosing trace."""
        return any(isinstance(leaf, Tracer) for leaf in self.arguments.dynamic)

    def donated_leaves(self) -> frozenset[int]:
        """Returns the numbers of the dynamic leaves that belong to donated arguments."""
        signature, count = self.signature, len(self.args)
        nums = {i % count for i in signature.donate_nums if -count <= i < count}
        args, kwargs = self.key.treedef.children()
        donated = [i in nums for i in range(count) if i not in self.key.positions]
        donated += [name in signature.donate_names for name in kwargs.entries()]
        parts = zip(donated, (*args.children(), *kwargs.children()), strict=True)
        leaves = [is_donated for is_donated, part in parts for _ in range(part.num_leaves)]
        return frozenset(k for k, i in enumerate(self.arguments.where) if leaves[i])

    def objects(self) -> Iterator[tuple[Any, str]]:
        """Yields the static values of the call and their names: changes inside them are watched."""
        for i in sorted(self.key.positions):
            yield self.args[i], parameter_name(self.signature.fun, i)
        yield from ((x, name) for name, x in self.kwargs.items() if name in self.signature.static_names)
        static = {*range(len(self.arguments.leaves))}.difference(self.arguments.where)
        if static:
            paths = self.key.paths(self.signature.fun)
            yield from ((self.arguments.leaves[i], paths[i]) for i in sorted(static))
        dynamic = self.signature.dynamic(self.args, self.kwargs, self.key.positions)
        yield from ((x, name) for x, name in tree.settings(dynamic) if callable(x) or hasattr(x, "__dict__"))


class Signature(NamedTuple):
    """A function's parameters, and which of them are static and which are donated, by position and by name."""

    fun: Fun
    movable: tuple[str | None, ...]
    static_nums: tuple[int, ...]
    static_names: tuple[str, ...]
    donate_nums: tuple[int, ...]
    donate_names: tuple[str, ...]

    @classmethod
    def of(
        cls, fun: Fun, static_nums: Numbers, static_names: Names, donate_nums: Numbers, donate_names: Names
    ) -> Signature:
        """Returns the signature of `fun` with these roles.

        Raises:
            ArgumentError: `fun` has no such parameter, or one is both static and donated.
        """
        parameters = _parameters(fun)
        static = _resolve("static", fun, parameters, static_nums, static_names)
        donated = _resolve("donate", fun, parameters, donate_nums, donate_names)
        both = {*static[1]} & {*donated[1]} or {*static[0]} & {*donated[0]}
        if both:
            problem = (
                f"{', '.join(sorted(map(str, both)))} {'is' if len(both) == 1 else 'are'} both static and donated."
            )
            raise user_error(ArgumentError, "nnc.compile", problem, fix="donate only arguments that are arrays.")
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        movable = tuple(p.name if p.kind is p.POSITIONAL_OR_KEYWORD else None for p in positional)
        return cls(fun, movable, *static, *donated)

    @property
    def donates(self) -> bool:
        """Whether any argument is donated."""
        return bool(self.donate_nums or self.donate_names)

    def take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: str | None = None) -> Call:
        """Splits these arguments. Arguments passed by name are moved to their position, where they have one.

        Args:
            args: the arguments by position.
            kwargs: the arguments by name.
            device: the device that the function runs on; None: the one of its array arguments.

        Raises:
            DeviceError: the array arguments lie on two devices.
            ArgumentTypeError: a static argument has no hash, or an argument is of a type that nnc does not take.
        """
        args, kwargs = self.by_position(args, kwargs)
        count = len(args)
        positions = frozenset(i % count for i in self.static_nums if -count <= i < count)
        static: list[tuple[str, Any]] = []
        if positions or (self.static_names and kwargs):
            static = [(parameter_name(self.fun, i), args[i]) for i in sorted(positions)]
            static += [(name, kwargs[name]) for name in sorted(kwargs) if name in self.static_names]
            for name, value in static:
                tree.check_hashable("nnc.compile", name, value)
            arguments = FlatTree(self.dynamic(args, kwargs, positions), self.fun, positions)
        else:
            arguments = FlatTree((args, kwargs), self.fun)
        leaves = leaf_keys(arguments, name_of(self.fun))
        device = device_of(arguments.dynamic, name_of(self.fun), device)
        key = Key(arguments.treedef, leaves, tuple((name, setting(value)) for name, value in static), positions, device)
        return Call(key, self, args, kwargs, arguments)

    def dynamic(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], positions: frozenset[int]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments but those at static positions and of static names."""
        named = {name: x for name, x in kwargs.items() if name not in self.static_names}
        return tuple(x for i, x in enumerate(args) if i not in positions), named

    def by_position(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], left_out: frozenset[int] = frozenset()
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with named ones moved to their positions, up to the first gap."""
        if not kwargs:
            return args, kwargs
        movable = [name for i, name in enumerate(self.movable) if i not in left_out]
        named, moved = dict(kwargs), list(args)
        while len(moved) < len(movable) and (name := movable[len(moved)]) is not None and name in named:
            moved.append(named.pop(name))
        return tuple(moved), named


def parameter_names(fun: Fun) -> list[str]:
    """Returns the names of the parameters of `fun`."""
    return [parameter.name for parameter in _parameters(fun)]


def _parameters(fun: Fun) -> list[inspect.Parameter]:
    """Returns the parameters of `fun`; `*args, **kwargs` where it has no signature."""
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        kinds = (("args", inspect.Parameter.VAR_POSITIONAL), ("kwargs", inspect.Parameter.VAR_KEYWORD))
        return [inspect.Parameter(name, kind) for name, kind in kinds]


def _resolve(
    role: str, fun: Fun, parameters: list[inspect.Parameter], nums: Numbers, names: Names
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Completes positions by names, and names by positions."""
    positions = tuple(nums) if isinstance(nums, (tuple, list)) else () if nums is None else (nums,)
    keywords = tuple(names) if isinstance(names, (tuple, list)) else () if names is None else (names,)
    wrong = [i for i in positions if not isinstance(i, int)] + [name for name in keywords if not isinstance(name, str)]
    if wrong:
        problem = f"{role}_argnums holds ints and {role}_argnames strings, not {wrong[0]!r}."
        fix = "name arguments by position in argnums, by name in argnames."
        raise user_error(ArgumentTypeError, "nnc.compile", problem, fix=fix)
    kinds = {p.kind for p in parameters}
    ordered = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    all_names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for name in keywords:
        if name not in all_names and inspect.Parameter.VAR_KEYWORD not in kinds:
            problem = f"{role}_argnames names {name!r}, which {name_of(fun)} does not take."
            operands = {"parameters": ", ".join(all_names)}
            fix = "name one of its parameters."
            raise user_error(ArgumentError, "nnc.compile", problem, operands=operands, fix=fix)
    if inspect.Parameter.VAR_POSITIONAL in kinds:  # counted from the end, positions depend on the call
        fixed = {*positions, *(ordered.index(name) for name in keywords if name in ordered)}
        return tuple(sorted(fixed)), tuple({*keywords, *(ordered[i] for i in fixed if 0 <= i < len(ordered))})
    for i in positions:
        if not -len(ordered) <= i < len(ordered):
            problem = f"{role}_argnums names argument {i}, but {name_of(fun)} takes {len(ordered)}."
            operands = {"parameters": ", ".join(ordered)}
            fix = "count from 0, or use names."
            raise user_error(ArgumentError, "nnc.compile", problem, operands=operands, fix=fix)
    fixed = {i % len(ordered) for i in positions} | {ordered.index(name) for name in keywords if name in ordered}
    return tuple(sorted(fixed)), tuple({*keywords, *(ordered[i] for i in fixed)})


# -- patterns of calls ------------------------------------------------------------------------------------------------


class CallPattern(NamedTuple):
    """The pattern of calls of one key, in a form that is fast to compare with a call.

    `keys` are the parts that each leaf gives to the key, as `key_of` finds them, `where` says which leaves are dynamic (None:
    all), `converted` which become others: arrays of other libraries NumPy arrays, `numpy.float64` a weak array. Their keys
    describe the converted leaf.
    """

    take: Take | None  # None: the arguments are the leaves
    take_named: Take | None
    keys: tuple[Any, ...]
    key_of: Callable[[Any], tuple[Any, ...]]
    where: tuple[int, ...] | None
    converted: tuple[int, ...]

    @classmethod
    def of(cls, call: Call) -> CallPattern | None:
        """Makes the pattern of this call; None where calls of its key must be split in the general way."""
        args, kwargs = call.args, call.kwargs
        take, take_named = make_pattern(args), make_pattern(kwargs) if kwargs else None
        if call.key.static or call.key.positions or take is None or (kwargs and take_named is None):
            return None
        leaves, where = call.arguments.leaves, call.arguments.where
        dynamic = tuple(where) if len(where) < len(leaves) else None
        if not kwargs and all(type(x) in _LEAF_KEYS for x in args):
            take = None
        read = list(leaves)
        for i, leaf in zip(where, call.arguments.dynamic, strict=True):
            read[i] = leaf
        converted = tuple([i for i in where if read[i] is not leaves[i]])
        types = {*map(type, leaves)}
        key_of = _LEAF_KEYS.get(types.pop(), _leaf_key) if len(types) == 1 else _leaf_key
        try:
            keys = tuple(map(key_of, read))
        except MISMATCHES:  # another thread donated an array meanwhile
            return None
        return cls(take, take_named, keys, key_of, dynamic, converted)

    @property
    def arrays(self) -> tuple[tuple[TensorSpec, dtypes.Weakness], ...] | None:
        """The spec of each leaf, and whether it is weak; None unless all are arrays of the CPU."""
        are_arrays = self.key_of is _LEAF_KEYS[Array] and self.where is None
        return tuple((spec, weak) for _, spec, weak in self.keys) if are_arrays else None

    def taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns all leaves of another call; None where its containers differ from the pattern's."""
        leaves: list[Any] = []
        try:
            if self.take is None:
                leaves += args
            else:
                self.take(args, leaves)
            if kwargs or self.take_named is not None:
                if self.take_named is None:
                    return None
                self.take_named(kwargs, leaves)
        except MISMATCHES:
            return None
        return leaves

    def leaves_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the dynamic leaves of another call; None where the call does not match the pattern."""
        leaves = self.taken(args, kwargs)
        if leaves is not None and self.converted and not _convert(leaves, self.converted):
            return None
        try:
            if leaves is None or tuple(map(self.key_of, leaves)) != self.keys:
                return None
        except MISMATCHES:
            return None
        return leaves if self.where is None else [leaves[i] for i in self.where]


# of calls whose leaves are all of one type
_LEAF_KEYS: Mapping[type, Callable[[Any], tuple[Any, ...]]] = MappingProxyType({
    Array: attrgetter("__class__", "spec", "weak"),
    DeviceArray: attrgetter("__class__", "spec", "weak", "memory.device"),
})  # fmt: skip


def _convert(leaves: list[Any], places: Sequence[int]) -> bool:
    """Replaces leaves by operands; returns whether all can be read."""
    try:
        for i in places:
            if tree.is_array(leaves[i]):
                leaves[i] = read_leaf(leaves[i])
    except NncError:  # the general way words the error
        return False
    return True


def _leaf_key(leaf: Any) -> tuple[Any, ...]:
    """Returns a leaf's part of the key: its type, and all else by which it selects a program."""
    known = _LEAF_KEYS.get(type(leaf))
    if known is not None:
        return known(leaf)
    if isinstance(leaf, (np.ndarray, np.generic)):
        return type(leaf), TensorSpec(leaf.shape, leaf.dtype)
    if isinstance(leaf, int):
        return type(leaf), dtypes.exact_dtype(leaf)
    return type(leaf), None if dtypes.is_scalar(leaf) else setting(leaf)


# -- keys --------------------------------------------------------------------------------------------------------------


def leaf_keys(arguments: FlatTree, where: str) -> tuple[Any, ...]:
    """Returns each leaf's part of the key; the dynamic leaves become operands."""
    if not all(type(leaf) is Array for leaf in arguments.dynamic):
        arguments.dynamic = [as_operand(leaf, where, "an argument") for leaf in arguments.dynamic]
    specs = [
        (leaf.spec, leaf.weak) if type(leaf) is Array else (argument_spec(leaf), is_weak(leaf))
        for leaf in arguments.dynamic
    ]
    if len(specs) == len(arguments.leaves):
        return tuple(specs)
    keys: list[Any] = list(arguments.leaves)
    for i, spec in zip(arguments.where, specs, strict=True):
        keys[i] = spec
    return tuple([key if i in arguments.where else setting(key) for i, key in enumerate(keys)])


def device_of(leaves: Sequence[Any], where: str, device: str | None = None) -> str:
    """Returns the device that a function runs on: that of its array arguments, or else the ambient one. Where another argument
    lies on a device, arrays of the CPU without axes are sent there.

    Args:
        where: the function's name in messages.
        device: the device that the user chose; arrays of the CPU are sent there.

    Raises:
        DeviceError: arguments lie on two devices, or on another one than `device`.
    """
    if device is not None:
        check_places(leaves, where, device)
        return device
    ambient = get_context().device
    if ambient is None and not any(isinstance(leaf, DeviceArray) for leaf in leaves):
        return CPU
    places = {x.device: x for x in leaves if isinstance(x, DeviceArray) or (isinstance(x, Array) and x.ndim)}
    if len(places) > 1:
        first, second = sorted(places)[:2]
        problem = f"its arguments are on {first} and on {second}."
        operands = {f"on {place}:": leaf.spec for place, leaf in places.items()}
        fix = f"copy some of them first: nnc.device_put(x, {second!r})."
        raise user_error(DeviceError, where, problem, operands=operands, fix=fix)
    return next(iter(places), CPU if ambient is None else ambient.device.name)


def check_places(leaves: Sequence[Any], where: str, device: str) -> None:
    """Refuses arrays that lie neither on the function's device nor on the CPU.

    Args:
        leaves: the dynamic leaves of the call.
        where: the function's name in messages.
        device: the name of the function's device.
    """
    for leaf in leaves:
        if isinstance(leaf, DeviceArray) and leaf.device != device:
            problem = f"it runs on {device}, and an argument is on {leaf.device}."
            fix = f"copy the argument first: nnc.device_put(x, {device!r})."
            raise user_error(DeviceError, where, problem, operands={"argument": leaf.spec}, fix=fix)


def shown_spec(spec: TensorSpec, weak: dtypes.Weakness) -> TensorSpec:
    """Returns the spec of a leaf with the dtype that it shows."""
    return spec.update(dtype=dtypes.shown_dtype(spec.dtype, weak))


def is_spec(key: Any) -> bool:
    """Whether an entry of a key stands for an array or a number."""
    return isinstance(key, tuple) and isinstance(key[0], TensorSpec)


# -- static values -----------------------------------------------------------------------------------------------------


class Identity:
    """A leaf without a hash, compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def setting(value: Any) -> Any:
    """Returns a static value as part of a key: equal to another only if no function can tell them apart (1, 1.0 and True; 0.0,
    -0.0).
    """
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    if type(value) is tuple:
        return tuple, tuple(map(setting, value))
    try:
        hash(value)
    except TypeError:
        return Identity(value)
    return type(value), value
