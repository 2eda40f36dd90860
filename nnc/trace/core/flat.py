"""Flattens users' functions over pytrees for traces, which take flat sequences of values.

Leaves that are no arrays or numbers (strings, functions, settings) are static: they pass through untouched.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from nnc import tree
from nnc.array.array import Array, as_value
from nnc.array.operators import ArrayMethods
from nnc.array.promote import as_operand, is_weak, with_weakness
from nnc.base.source import short_path
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentError, ArgumentTypeError, InternalError, NncError, user_error
from nnc.errors.errors import shorten
from nnc.errors.tracebacks import arguments_misfit

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})

T = TypeVar("T")


def name_of(fun: Callable[..., Any]) -> str:
    """Returns a name for `fun` in messages."""
    inner = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None)
    return getattr(fun, "__name__", None) or (name_of(inner) if inner is not None else type(fun).__name__)


def definition_of(fun: Any) -> str:
    """Returns the file and line where the user defined `fun`, as far as they are known."""
    code = getattr(inspect.unwrap(fun) if callable(fun) else fun, "__code__", None)
    return f"at {short_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else f"({type(fun).__name__})"


_FORMS: Mapping[str, tuple[str, str]] = (
    MappingProxyType(  # of functions that take a function and its arguments in one call
        {
            "nnc.cond": ("each branch", "nnc.cond(pred, true_fun, false_fun, *operands)"),
            "nnc.switch": ("each branch", "nnc.switch(index, branches, *operands)"),
            "nnc.case_of": ("each branch", "nnc.case_of(index, branches, *operands)"),
            "nnc.scan": ("its first argument", "nnc.scan(f, init, xs)"),
            "nnc.map": ("its first argument", "nnc.map(f, xs)"),
            "nnc.associative_scan": ("its first argument", "nnc.associative_scan(fn, elems)"),
            "nnc.while_loop: cond_fun": ("the condition", "nnc.while_loop(cond_fun, body_fun, init_val)"),
            "nnc.while_loop: body_fun": ("the body", "nnc.while_loop(cond_fun, body_fun, init_val)"),
            "nnc.fori_loop: body_fun": ("the body", "nnc.fori_loop(lower, upper, body_fun, init_val)"),
            "nnc.jvp": ("its first argument", "nnc.jvp(f, (x,), (t,))"),
            "nnc.hvp": ("its first argument", "nnc.hvp(f, (x,), (t,))"),
            "nnc.vjp": ("its first argument", "nnc.vjp(f, x)"),
            "nnc.linearize": ("its first argument", "nnc.linearize(f, x)"),
        }
    )
)


def check_callable(fun: Any, transform: str) -> None:
    """Raises ArgumentTypeError unless `fun` can be called."""
    if not callable(fun):
        role, form = _FORMS.get(transform, ("its first argument", ""))
        fix = f"write {form}." if form else f"pass the function itself: {transform}(f)(x), not {transform}(f(x))."
        raise user_error(ArgumentTypeError, transform, f"{role} must be a function, it is {shorten(fun)}.", fix=fix)


def call_function(
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = _NO_NAMES,
    *,
    where: str | None = None,
    fix: str | None = None,
) -> Any:
    """Calls a user's function, and returns its result.

    Args:
        args: the arguments by position.
        kwargs: the arguments by name.
        where: the function of nnc that chose the arguments; None where the user did.
        fix: the remedy that the error gives where they do not fit.

    Raises:
        ArgumentTypeError: the arguments do not fit the function's signature.
    """
    try:
        return fun(*args, **kwargs)
    except TypeError as error:
        misfit = arguments_misfit(error, fun, name_of(fun), args, kwargs, where=where, fix=fix)
        if misfit is None:
            raise
        raise misfit from None


def check_argnums(where: str, argnums: int | Sequence[int], fix: str) -> tuple[int, ...]:
    """Returns the argument numbers as a tuple; raises ArgumentTypeError unless they are ints."""
    positions = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
    if any(hasattr(i, "shape") or isinstance(i, (float, complex)) for i in positions):
        fix = f"write {where}(f)(x): the arguments go to the function that {where} returns."
    if not all(isinstance(i, int) for i in positions):
        problem = f"argnums must be an int or a sequence of ints, it is {shorten(argnums)}."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    return positions


def check_positions(where: str, name: str, numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """Argument numbers counted from the front, in their order; raises where there is no such argument or one stands twice."""
    for i in numbers:
        if not -count <= i < count:
            problem = f"{name} names argument {i} of a call with {count} positional arguments."
            fix = f"use numbers from {-count} to {count - 1}." if count else "pass the argument by position."
            raise user_error(ArgumentError, where, problem, fix=fix)
    positions = tuple(i % count for i in numbers)
    if len(set(positions)) != len(positions):
        raise user_error(
            ArgumentError, where, f"{name} {tuple(numbers)} names one argument twice.", fix="name each argument once."
        )
    return positions


class FlatTree:
    """A flattened pytree: its dynamic leaves, and the structure to build a tree of other leaves.

    Among the dynamic leaves, arrays of other libraries are NumPy arrays that share their memory, and NumPy's scalars of Python
    types are weak arrays.

    Args:
        value: the pytree.
        fun: the called function, where `value` is the (args, kwargs) of a call; messages name its parameters.
        left_out: the positions of the call's arguments that are not in `args`.
    """

    __slots__ = ("dynamic", "leaves", "treedef", "where")

    leaves: list[Any]
    dynamic: list[Any]

    def __init__(
        self, value: Any, fun: Callable[..., Any] | None = None, left_out: frozenset[int] = frozenset()
    ) -> None:
        self.leaves, self.treedef = tree.flatten(value)
        self.where = [i for i, leaf in enumerate(self.leaves) if tree.is_array_type(type(leaf))]
        self.dynamic = [self.leaves[i] for i in self.where]
        for i, x in enumerate(self.dynamic):
            kind = type(x)
            if kind is Array:
                continue
            if kind is np.ndarray:
                if not x.dtype.isnative:  # of another machine's byte order
                    self.dynamic[i] = x.astype(x.dtype.newbyteorder("="))
            elif kind is np.float64 or kind is np.complex128:
                self.dynamic[i] = read_leaf(x)
            elif is_foreign(kind):
                self.dynamic[i] = self._read(x, self.where[i], fun, left_out)

    def _read(self, x: Any, place: int, fun: Callable[..., Any] | None, left_out: frozenset[int]) -> Any:
        """Returns the elements of another library's array, the leaf at `place`, as a NumPy array.

        Raises:
            ArgumentTypeError: the library does not give the elements.
            DTypeError: nnc has no such dtype.
        """
        try:
            return as_operand(x)
        except NncError:  # raised again with the name of the argument, which takes a while to find
            if fun is None:
                return as_operand(x, "pytree", f"the leaf {''.join(tree.paths(self.treedef)[place])}".rstrip())
            paths = argument_paths(self.treedef, functools.partial(parameter_name, fun, left_out=left_out))
            return as_operand(x, name_of(fun), f"argument {paths[place]}")

    def build(self, values: Sequence[Any]) -> Any:
        """Returns the tree with these dynamic leaves."""
        if len(self.where) == len(self.leaves) == len(values):
            return tree.unflatten(self.treedef, values)
        leaves = list(self.leaves)
        for i, value in zip(self.where, values, strict=True):
            leaves[i] = value
        return tree.unflatten(self.treedef, leaves)

    def skeleton(self) -> FlatTree:
        """Returns the same structure without the dynamic leaves, to be kept beyond a call."""
        twin = object.__new__(FlatTree)
        twin.leaves, twin.dynamic = list(self.leaves), [None] * len(self.where)
        twin.treedef, twin.where = self.treedef, self.where
        for i in self.where:
            twin.leaves[i] = None
        return twin

    def paths(self) -> list[str]:
        """Returns the path of each dynamic leaf."""
        paths = tree.paths(self.treedef)
        return ["".join(paths[i]) for i in self.where]


def read_leaf(x: Any) -> Any:
    """Converts a leaf: an array of another library to a NumPy array, a `numpy.float64` to a weak array. Arrays of nnc and NumPy
    stay.

    Raises:
        NncError: nnc cannot make an array of it.
    """
    operand = as_operand(x)
    return as_value(operand) if is_weak(operand) else operand


def argument_paths(treedef: tree.TreeDef, names: Callable[[int], str]) -> list[str]:
    """Returns the path of each leaf of (args, kwargs) as the function's author would write it: `params["w"]`.

    Args:
        names: returns the name of the parameter that takes the argument at a position.
    """
    known = functools.cache(names)  # to find a name takes longer than everything else
    return [argument_path(path, known) for path in tree.paths(treedef)]


def argument_path(path: Sequence[str], names: Callable[[int], str]) -> str:
    """Returns a path within (args, kwargs) as the function's author would write it.

    Args:
        path: the path's entries.
        names: returns the name of the parameter that takes the argument at a position.
    """
    if len(path) < 2:  # of all arguments by position, or of all by name
        return "**kwargs" if [*path] == ["[1]"] else "*args"
    which, first, *rest = path
    inner = first[1:-1]  # [0] or ["name"]
    return "".join([names(int(inner)) if which == "[0]" else inner.strip('"'), *rest])


def parameter_name(fun: Callable[..., Any], position: int, left_out: frozenset[int] = frozenset()) -> str:
    """Returns the name of the parameter of `fun` that takes the argument at a position; the position itself where there is no
    name.

    Args:
        position: the argument's position, not counting those in `left_out`.
        left_out: the positions of arguments that do not count.

    Example:
        >>> def f(x, *others): ...
        >>> parameter_name(f, 0), parameter_name(f, 2), parameter_name(max, 2)
        ('x', 'others[1]', '2')
    """
    position = next(itertools.islice((i for i in itertools.count() if i not in left_out), position, None))
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return str(position)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if position < len(named):
        return named[position]
    rest = [f"{p.name}[{position - len(named)}]" for p in parameters if p.kind is p.VAR_POSITIONAL]
    return rest[0] if rest else str(position)


def with_arrays(value: T) -> T:
    """Returns a pytree with nnc arrays in place of other libraries' arrays; `value` itself where it has none."""
    leaves, treedef = tree.flatten(value)
    places = [i for i, leaf in enumerate(leaves) if is_foreign(type(leaf))]
    for i in places:
        leaves[i] = as_value(leaves[i])
    return cast(T, tree.unflatten(treedef, leaves)) if places else value


def function_of(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positions: Sequence[int],
    names: Sequence[str] = (),
) -> Callable[..., Any]:
    """Returns `fun` as a function of the arguments at `positions` and those in `names` alone; the others stay as they are given,
    but for other libraries' arrays, which become nnc arrays.
    """
    chosen = {i % len(args) for i in positions}
    fixed = tuple([None if i in chosen else x for i, x in enumerate(args)])
    named = {name: x for name, x in kwargs.items() if name not in names}
    if not all(x is None or type(x) is Array for x in (*fixed, *named.values())):  # most calls hold no others
        fixed, named = with_arrays((fixed, named))

    def part(*values: Any) -> Any:
        rebuilt, rest = list(fixed), iter(values)
        for i in positions:
            rebuilt[i] = next(rest)
        return call_function(fun, rebuilt, {**named, **dict(zip(names, rest, strict=True))})

    return part


class FlatFunction:
    """`fun` as a function from the dynamic leaves of its arguments to the leaves of its result; `out` is the last result's tree."""

    def __init__(self, fun: Callable[..., Any], arguments: FlatTree) -> None:
        self.fun = fun
        self.arguments = arguments  # (args, kwargs)
        self.out: FlatTree | None = None

    @classmethod
    def of(cls, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> FlatFunction:
        """Makes the flat function for arguments that are still pytrees."""
        return cls(fun, FlatTree((args, kwargs or {}), fun))

    @property
    def leaves(self) -> list[Any]:
        """The dynamic leaves of the arguments."""
        return self.arguments.dynamic

    def paths(self) -> list[str]:
        """Returns the path of each dynamic leaf of the arguments, from the names of the parameters: `params["w"]`."""
        paths = argument_paths(self.arguments.treedef, lambda i: parameter_name(self.fun, i))
        return [paths[i] for i in self.arguments.where]

    def __call__(self, *values: Any) -> list[Any]:
        """Returns the dynamic leaves of the result."""
        args, kwargs = self.arguments.build(values)
        self.out = FlatTree(call_function(self.fun, args, kwargs))
        for leaf in self.out.leaves:
            check_result(leaf, self.fun)
        name = name_of(self.fun)
        return [as_operand(leaf, name, "result") for leaf in self.out.dynamic]

    @property
    def result(self) -> FlatTree:
        """The last result's tree."""
        if self.out is None:
            raise InternalError(f"{name_of(self.fun)} has not been run")
        return self.out

    def build_result(self, values: Sequence[Any]) -> Any:
        """Returns the result's tree with these values."""
        return self.result.build([_as_weak(x, like) for x, like in zip(values, self.result.dynamic, strict=True)])


def _as_weak(value: Any, like: Any) -> Any:
    """`value`, which takes the dtype of the array it meets if `like` does."""
    weak = is_weak(like)
    return with_weakness(value, weak) if weak and isinstance(value, ArrayMethods) else value


def check_result(leaf: Any, fun: Callable[..., Any]) -> None:
    """Raises ArgumentTypeError for results that are neither arrays nor settings (sets, iterators)."""
    if not hasattr(leaf, "spec") and (isinstance(leaf, (set, frozenset)) or hasattr(leaf, "__next__")):
        problem = f"it returns a {type(leaf).__name__}, which is no pytree of arrays."
        fix = "return arrays in lists, tuples, dicts or dataclasses."
        raise user_error(ArgumentTypeError, name_of(fun), problem, fix=fix)
