"""Specialised calls: the commands of a pure function for operands of given specs, and given settings, found once.

A function of nnc.numpy reads dtypes, shapes and settings, says which are wrong, and calls a few commands. Equal specs and
settings lead to equal commands. So a call that was met before does not run the function: its commands, traced once on abstract
operands, run eagerly, are recorded by the ambient trace, or both in a dynamic graph. The traced graph is closed, so it can depend
on nothing but operands and settings (nnc.trace.core.specialised makes it, one layer up, where functions can be traced).

The key of a call holds specs and weakness of its operands and all of its settings, exactly. Where a mode is on that looks at each
command, functions run as they are. nnc.base.bounded states the rule for all memories of calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import inf
from types import NoneType
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from nnc.base import dtypes
from nnc.base.bounded import BoundedCache
from nnc.base.context import AT_REST, Context, get_context, observes_commands, where_arguments_are
from nnc.base.traced_size import TracedSize
from nnc.calls.spelling import spelled
from nnc.errors import NncError
from nnc.errors.tracebacks import cut_traceback, leave
from nnc.graph.registry import REGISTRY
from nnc.graph.spec import TensorSpec

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]
Key = tuple[Any, ...]

# eager calls before one is specialised, which takes as long as fifty calls of the function (x + y, measured)
THRESHOLD = 2
KEYS_PER_CALL = 8  # one more call for so many keys: a loop over x[i], each i twice, would gain nothing
BOUND = 4096  # keys of one function; 2 MB of small calls
_NUMBERS = frozenset((bool, int, float, complex))
_EXACT = frozenset((int, str, NoneType, type, type(...), TracedSize))


class SpecialisedCall(Protocol):
    """The commands of a call. Values are its operands, in the order of the arguments."""

    @property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """From arrays and numbers to the result of the function."""

    @property
    def casts(self) -> Sequence[Callable[[Any], Any] | None]:
        """The conversions of operands that are numbers; None for arrays."""


@dataclass(slots=True)
class CallTable:
    """The specialised eager calls of one function by key, and how often keys without one were met (inf: they have none)."""

    version: int = 0
    calls: BoundedCache[Key, SpecialisedCall] = field(default_factory=lambda: BoundedCache(BOUND))
    counts: dict[Key, float] = field(default_factory=dict)

    def is_due(self, key: Key, threshold: int) -> bool:
        """Counts a call; returns whether more than `threshold` calls of this kind were made, so that it is to be specialised."""
        if self.version != REGISTRY.version:
            self.calls.clear()
            self.version, self.counts = REGISTRY.version, {}
        if len(self.counts) >= BOUND:
            self.counts = {}
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return threshold + (len(self.counts) // KEYS_PER_CALL if threshold else 0) < count < inf

    def keep(self, key: Key, call: SpecialisedCall | None) -> SpecialisedCall | None:
        """Keeps a call, or that there is none, and returns it."""
        self.counts[key] = inf
        return None if call is None else self.calls.keep(key, call)


@dataclass(slots=True)
class _Layers:
    """Types and functions of the layers above: arrays, variables of dynamic graphs, tracing."""

    array: Any = NoneType
    variable: Any = object  # its `owner.follow(call, values)` runs a call on variables and records it
    device_array: Any = object  # likewise, on a device
    specialise: Callable[[Function, tuple[Any, ...], dict[str, Any], Sequence[int]], SpecialisedCall | None] = (
        lambda function, args, kwargs, places: None
    )
    record: Callable[[Function, bool, tuple[Any, ...], dict[str, Any]], Any] = (
        lambda function, may_capture, args, kwargs: function(*args, **kwargs)
    )


# A hook: operators of arrays are specialised where their class is made, which is before anything can be traced.
_LAYERS = _Layers()


def set_layers(**layers: Any) -> None:
    """Installs the types of arrays and variables, the specialiser of calls, and the recorder of calls while something is staged."""
    for name, layer in layers.items():
        setattr(_LAYERS, name, layer)


def specialised(operands: int) -> Callable[[F], F]:
    """Answers calls of a function by specialised calls; other calls are `spelled`.

    The function must be pure, depend only on the specs of its arrays and on its settings, and return one array.

    Args:
        operands: how many of the first arguments are arrays, numbers or lists of arrays; the others are arrays or settings.

    Example:
        >>> @specialised(1)
        ... def double(x, /):
        ...     return x + x
        >>> [double(nnp.ones(2) * n).sum().item() for n in range(4)]
        [0.0, 4.0, 8.0, 12.0]
    """

    def decorate(function: F) -> F:
        function = spelled(function)
        table = CallTable()
        glance = table.calls.glance

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                context = get_context()
                if context is not AT_REST and context.staging is not None:
                    return _LAYERS.record(function, False, args, kwargs)
                site = _site_of(args, kwargs, operands)
                if site is None or (context is not AT_REST and not _may_follow(context, site[2])):
                    return _run_where_arguments_are(function, args, kwargs)
                key, values, owner, args = site
                try:
                    known = glance(key)
                except TypeError:  # a setting without a hash
                    return _run_where_arguments_are(function, args, kwargs)
                if table.version != REGISTRY.version:
                    known = None
                if known is None and owner is not None and owner.specialises_at_once and table.is_due(key, 0):
                    known = table.keep(key, _specialise(function, args, kwargs, operands))
                if known is not None:
                    try:
                        result = known.run(values) if owner is None else owner.follow(known, values)
                        if result is not NotImplemented:
                            return result
                    except Exception as error:
                        if _is_fault(error, known, values):
                            raise
                with nullcontext() if owner is None else where_arguments_are(args, kwargs):
                    result = function(*args, **kwargs)
                if known is None and table.is_due(key, THRESHOLD):
                    table.keep(key, _specialise(function, args, kwargs, operands))
                return result
            except BaseException as error:
                other = leave(error, function, function.__name__, args, kwargs)
                if other is None:
                    raise
                try:
                    raise other from None
                except NncError as worded:
                    cut_traceback(worded)
                    raise

        return cast(F, call)

    return decorate


Site = tuple[Key, list[Any], Any, tuple[Any, ...]]  # a call's key, its operands, their owner, and its arguments


def _site_of(args: tuple[Any, ...], kwargs: dict[str, Any], operands: int) -> Site | None:
    """Returns the key of a call and its operands; None where an operand is of a kind for which there are no keys, and where the
    result's device is named.
    """
    key: list[Any] = []
    values: list[Any] = []
    owner, array, left = None, _LAYERS.array, operands
    for arg in args:
        kind = type(arg)
        if kind is array:
            key.append(arg.spec)
            if arg.weak:
                key += (_WEAK, arg.weak)  # True alone would equal a setting of 1
            values.append(arg)
        elif (kind is _LAYERS.variable or kind is _LAYERS.device_array) and _leads(found := arg.owner, owner):
            owner = found
            key.append(arg.spec)
            if arg.weak:
                key += (_WEAK, arg.weak)
            values.append(arg)
        elif left > 0:
            if kind in _NUMBERS:
                values.append(arg)
                key.append(kind)
            elif kind is np.ndarray and dtypes.is_known(arg.dtype):
                values.append(array(arg))
                key.append(TensorSpec(arg.shape, arg.dtype))
            elif kind is np.float64 or kind is np.complex128:
                weak = tuple([_weak_array(x) if i < operands else x for i, x in enumerate(args)])
                return _site_of(weak, kwargs, operands)
            elif kind is list and all(type(x) is array and not x.weak for x in arg):
                values += arg
                key.append(tuple([x.spec for x in arg]))
            else:
                return None
        else:
            key.append(exact_setting(arg))
        left -= 1
    if kwargs:
        if kwargs.get("device") is not None:
            return None
        key += (_NAMED, exact_setting(tuple(kwargs.items())))
    return tuple(key), values, owner, args


def _may_follow(context: Context, owner: Any) -> bool:
    """Whether a specialised call may stand for the function: nothing looks at commands, and the operands lie on the device."""
    if context.modes and observes_commands(context):
        return False
    return context.device is None or context.device == owner


def _is_fault(error: Exception, call: SpecialisedCall, values: Sequence[Any]) -> bool:
    """Whether a specialised call failed on operands that it takes. After other errors the function does as it should, or words
    the mistake: an index out of range, a donated array, a number that does not fit.
    """
    if isinstance(error, (NncError, MemoryError)):
        return False
    for value, cast_number in zip(values, call.casts, strict=True):
        if cast_number is None:
            if isinstance(value, _LAYERS.array) and value.is_deleted():
                return False
        else:
            try:
                cast_number(value)
            except (OverflowError, TypeError, ValueError):
                return False
    return True


def _run_where_arguments_are(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the function as it is."""
    with where_arguments_are(args, kwargs):
        return function(*args, **kwargs)


def specialised_in_traces(function: F, *, may_capture: bool = False) -> F:
    """Wraps `function`: while something is staged, and only then, specialised calls answer its calls.

    The function must be pure, and depend only on the specs of its arrays and on its settings. It returns a value, None, or a
    tuple of these.

    Args:
        may_capture: whether the function is made anew for each use within a trace, and may capture values of the trace.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if get_context().staging is not None:
            return _LAYERS.record(function, may_capture, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


def _leads(found: Any, owner: Any) -> bool:
    """Whether an operand's owner, `found`, can follow a call: that of all operands, `owner`, where there is one already."""
    return found is not None and owner in (None, found) and found.follows_calls


def _specialise(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], operands: int
) -> SpecialisedCall | None:
    arrays = _LAYERS.array, _LAYERS.variable, _LAYERS.device_array
    places = [i for i, arg in enumerate(args) if i < operands or type(arg) in arrays]
    return _LAYERS.specialise(function, args, kwargs, places)


def _weak_array(x: Any) -> Any:
    """`x`; a NumPy scalar whose type is a Python type, too, as a weak array."""
    return _LAYERS.array(np.asarray(x), weak=True) if isinstance(x, (np.float64, np.complex128)) else x


def exact_setting(value: Any) -> Any:
    """Returns a setting as part of a key: equal only to settings that no function can tell apart (so 1, 1.0 and True differ,
    and 0.0 and -0.0).
    """
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is tuple:
        return tuple([exact_setting(x) for x in value])
    if kind is slice:
        return slice, exact_setting(value.start), exact_setting(value.stop), exact_setting(value.step)
    if kind is float or kind is complex or isinstance(value, np.generic):
        return kind, repr(value)
    if kind is bool or isinstance(value, (np.dtype, dtypes.NamedDType)):
        return kind, value
    return _UNKNOWN


_NAMED = object()  # the next entries of a key are passed by name
_WEAK = object()  # the entry before it is the spec of a weak array, the next one its weakness
_UNKNOWN: list[Any] = []  # has no hash, so that calls with such a setting have no key
