"""Concrete immutable arrays, and how other values become arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from nnc.array.operators import ArrayMethods
from nnc.array.promote import as_operand, astype, dtype_of, to_dtype, with_weakness
from nnc.base import dtypes, html
from nnc.base.casting import cast_array, limits
from nnc.base.context import get_context
from nnc.base.garbage import IN_VARIABLE
from nnc.base.silence import silently
from nnc.calls.specialise import specialised
from nnc.commands import elementwise as ew
from nnc.device import CPU, check_program, dlpack, find_device, interpreter_of
from nnc.device.dlpack import is_foreign
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    NncError,
    TraceError,
    numpy_remedy,
    remedy,
    user_error,
)
from nnc.errors.names import MissingMethod
from nnc.errors.tracebacks import api_boundary, cut_traceback, leave
from nnc.graph import TensorSpec, spec_of

if TYPE_CHECKING:
    from nnc.array.likes import ArrayLike, DTypeLike

NDArray = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])
_set = object.__setattr__


_LARGE = 1 << 13  # elements, over which a pass takes longer than a function does to choose its commands


def array_method_by_value(function: F) -> F:
    """Like `array_method`, of a function that looks at numbers that are known: calls of large arrays are not specialised."""
    method = specialised_of_small(function)
    setattr(ArrayMethods, function.__name__, method)
    return method


def specialised_of_small(function: F) -> F:
    """`function`, whose calls are answered by specialised ones; but it looks itself at large arrays on the host, whose numbers may
    save it work that is much beside the call.
    """
    known = specialised(1)(function)

    @api_boundary
    @functools.wraps(function)
    def call(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        is_large = type(x) in (Array, np.ndarray) and x.size >= _LARGE
        return (function if is_large else known)(x, *args, **kwargs)

    return cast(F, call)


def name_foreign_methods(names: Iterable[str]) -> None:
    """Lets methods of other libraries' arrays, such as `x.numpy()`, raise an error that names nnc's code."""
    for name in names:
        if not hasattr(Array, name):
            setattr(ArrayMethods, name, MissingMethod(name))


class _Unfinished(ArrayMethods):
    """An array that is being made: its fields can still be set."""

    __slots__ = ("__weakref__", "memory", "spec", "weak")

    memory: NDArray


class Array(_Unfinished):
    """An immutable array on the host.

    Made by `nnc.asarray` and by every nnc function. It shares memory with NumPy where it can: `np.asarray(x)` is a read-only
    view of it.

    Args:
        data: elements, which are shared and must not be written any more.
        weak: whether it takes the dtype of the array that it meets, as a Python scalar does.

    Example:
        >>> x = nnc.asarray([1.0, 2.0])
        >>> x * 2 + 1
        Array([3., 5.], dtype=float32)
    """

    # Kernels read `memory`, writable perhaps; it is gone once the array is donated. All others see `data`.
    __slots__ = ()

    def __new__(cls, data: NDArray, *, weak: dtypes.Weakness = False) -> Array:
        """Returns the array of elements that nobody else writes to."""
        return new_array(data, TensorSpec(data.shape, data.dtype), weak)

    @api_boundary
    def __setattr__(self, name: str, value: Any) -> None:
        problem = "nnc arrays are immutable."
        fix = "make a new array: x.reshape(...), x.astype(...), x.at[index].set(value)."
        raise user_error(ArgumentTypeError, f"x.{name} = value", problem, operands={"x": self.shown}, fix=fix)

    @property
    def data(self) -> NDArray:
        """The elements as a read-only NumPy array.

        Raises:
            ArgumentTypeError: the array was donated to a compiled function.
        """
        try:
            memory = self.memory
        except AttributeError:
            try:
                raise donated_error(self.spec) from None
            except NncError as error:
                cut_traceback(error)
                raise
        data = _read_only(memory)
        if data is not memory:  # few results are looked at, so that a view of each would cost more
            _set(self, "memory", data)
        return data

    def delete(self) -> None:
        """Releases the memory; any later use raises."""
        with suppress(AttributeError):
            object.__delattr__(self, "memory")

    def release(self) -> NDArray:
        """Gives the memory up: the elements, writable if nothing else sees them; any later use of the array raises."""
        try:
            memory: Any = self.memory
            object.__delattr__(self, "memory")  # which only one of several threads can do
        except AttributeError:
            raise donated_error(self.spec) from None
        flags = memory.flags
        if flags.owndata and flags.carray and sys.getrefcount(memory) == IN_VARIABLE:
            return cast(NDArray, memory)  # a result that nobody has looked at
        data = _read_only(memory)
        del memory, flags
        memory = data.base
        alone = isinstance(memory, np.ndarray) and memory.flags.owndata and memory.flags.c_contiguous
        if alone and sys.getrefcount(data) == IN_VARIABLE and sys.getrefcount(memory) == IN_VARIABLE + 1:
            alike = memory.shape == data.shape and memory.strides == data.strides  # so they begin at the same place
            return cast(NDArray, memory.view(data.dtype)) if alike else data
        return data

    def take_back(self, memory: NDArray) -> None:
        """Has the memory again that it gave up, which nobody has written to.

        Args:
            memory: the memory that was given up.
        """
        _set(self, "memory", memory)

    def move(self, memory: NDArray) -> None:
        """Lies in this memory from now on, which holds the elements and is nobody else's; not if it has given its memory up.

        Args:
            memory: the memory that holds the elements.
        """
        if not self.is_deleted():
            _set(self, "memory", memory)

    def as_weak(self, weak: dtypes.Weakness = True) -> Array:
        """Returns the same value, taking the dtype of the array it meets, as a Python scalar does.

        Args:
            weak: its weakness; False makes it strong.
        """
        return new_array(self.data, self.spec, weak)

    def is_deleted(self) -> bool:
        """Whether the memory has been released."""
        return not hasattr(self, "memory")

    @property
    def device(self) -> str:
        """The device that holds the elements."""
        return CPU

    def to_device(self, device: object, /, stream: object = None) -> Array:
        """Returns the array on another device.

        Args:
            device: as `nnc.devices` lists it.
            stream: accepted, as in the Array API standard; there are none.

        Raises:
            UnsupportedError: there is no such device.
        """
        try:
            interpreter = interpreter_of(find_device(device, "to_device"))
            return self if interpreter is None else cast("Array", interpreter.put(self))
        except BaseException as error:
            cut_traceback(error)
            raise

    def block_until_ready(self) -> Array:
        """Waits until the value is computed, which for host arrays it always is."""
        return self

    def concrete(self, what: str = "", fix: str = "") -> NDArray:
        """Returns the elements as a NumPy array; tracers raise here, with the remedy `fix`.

        Args:
            what: the function that asks for the values, for the error of a tracer.
            fix: the remedy, for the error of a tracer.
        """
        return self.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        try:
            if self.weak is dtypes.NUMBER and dtype is None:
                dtype = self.dtype
            if self.weak is dtypes.NUMBER and copy is not False:
                converted: NDArray = silently(self.data.astype, dtype)  # a number too large for a float is infinite
                return converted
            if copy is None and dtype is None:
                return self.data
            return np.array(self.data, dtype=dtype, copy=copy)
        except BaseException as error:
            cut_traceback(error)
            raise

    @api_boundary
    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        is_old = max_version is None or max_version < (1, 0)
        if is_old:  # it cannot say that memory is read-only: a copy, also with copy=False
            return dlpack.export(np.array(self), stream=stream, dl_device=dl_device)
        return dlpack.export(np.asarray(self), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.HOST, 0

    @api_boundary
    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(<donated>, {self.spec})"
        shown = self.memory.astype(np.float32) if self.dtype == dtypes.bfloat16 else np.asarray(self)
        body = np.array2string(shown, separator=", ", prefix="Array(", threshold=1000)
        shape = f"shape={self.shape}, " if self.size == 0 and self.shape != (0,) else ""
        return f"Array({body}, {shape}dtype={self.dtype.name})"

    @api_boundary
    def __str__(self) -> str:
        return str(np.asarray(self))

    def _repr_html_(self) -> str:
        """Returns the elements beside a small picture of them, for notebooks."""
        title = f"{self.shown} on {self.device}"
        if self.is_deleted():
            return html.show_text(title, "donated")
        values = self.data.astype(np.float32) if self.dtype == dtypes.bfloat16 else np.asarray(self)
        return html.show_array(title, values, np.array2string(values, separator=", ", threshold=1000))

    @api_boundary
    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (np.array(self.data), self.weak)

    @api_boundary
    def __copy__(self) -> Array:
        return new_array(self.data, self.spec, self.weak)

    @api_boundary
    def __deepcopy__(self, memo: Any) -> Array:
        return _restore(np.array(self.data), self.weak)


def new_array(memory: NDArray, spec: TensorSpec, weak: dtypes.Weakness = False) -> Array:
    """Returns the array of memory of this spec, which nobody else writes to."""
    array = _Unfinished()
    array.memory, array.spec, array.weak = memory, spec, weak
    # 185 ns; with `object.__setattr__` for each field 350, which would add a tenth to a small eager command.
    array.__class__ = Array
    return array  # type: ignore[return-value]  # `cast` is a call: 40 ns more


def settled(x: Any) -> Any:
    """Returns a value as it is now: an array is copied where somebody else may write to its memory, all else is returned itself."""
    if isinstance(x, np.ndarray):
        return x.copy() if x.flags.writeable or x.base is not None else x
    if type(x) is not Array or x.is_deleted():
        return x
    memory = x.memory
    if not isinstance(memory, np.ndarray):
        return x
    if memory.flags.owndata and (not memory.flags.writeable or sys.getrefcount(memory) == IN_VARIABLE + 1):
        return x
    base, depth = memory, 0
    while isinstance(base.base, np.ndarray):
        base, depth = base.base, depth + 1
    if base.flags.owndata and (not base.flags.writeable or (depth == 1 and sys.getrefcount(base) == IN_VARIABLE + 1)):
        return x  # a view that `data` made of a result
    return new_array(memory.copy(), x.spec, x.weak)


def donated_error(spec: TensorSpec) -> ArgumentTypeError:
    """Returns the error of any use of an array whose memory was given up.

    Args:
        spec: the array's spec.
    """
    problem = "its memory was given to a compiled function and reused."
    fix = "use the function's result instead, or drop donate_argnums."
    return user_error(ArgumentTypeError, "donated array", problem, operands={"x": spec}, fix=fix)


def _read_only(memory: NDArray) -> NDArray:
    """Returns the elements, for reading: a view, unless they are so anyway."""
    if not memory.flags.writeable:
        return memory
    view = memory.view()
    view.flags.writeable = False
    return view


def _restore(data: NDArray, weak: dtypes.Weakness) -> Array:
    return Array(data, weak=weak)


def asarray(
    obj: ArrayLike, dtype: DTypeLike | None = None, *, device: object = None, copy: bool | None = None
) -> Array:
    """Returns an nnc array of `obj`: an array, a number or nested lists of them.

    Memory of a NumPy array is shared unless `copy=True` or the dtype changes, so write to it no more.

    Args:
        obj: array, tracer, number or nested list.
        dtype: element type; by default the dtype of `obj`, where lists of Python floats become float32.
        device: as `nnc.devices` lists it; by default where `obj` is, else the one of `nnc.default_device`.
        copy: True always copies, False never.

    Raises:
        DTypeError: nnc has no such dtype, or a number does not fit into it.
        ShapeError: ragged lists.
        ArgumentTypeError: `obj` holds no numbers.
        ArgumentError: copy=False, but a copy is needed.

    Example:
        >>> asarray([[1, 2], [3, 4]], dtype="float32").shape
        (2, 2)
    """
    if dtype is None and device is None and not copy and get_context().device is None:
        if isinstance(obj, ArrayMethods) and not obj.weak:
            return obj  # type: ignore[return-value]  # a tracer, which types call an array
        if type(obj) is np.ndarray and dtypes.is_known(obj.dtype):
            return Array(obj)
    try:
        made = _make_array(obj, dtype, copy)
        return made if device is None and hasattr(obj, "spec") else _place(made, device)
    except BaseException as error:
        other = leave(error, asarray, "asarray", (obj, dtype), {})
        if other is None:
            raise
        try:
            raise other from None
        except NncError as worded:
            cut_traceback(worded)
            raise


def _place(x: Any, device: Any) -> Any:
    """Returns an array on a device; None stands for the ambient one. Tracers have no device."""
    if device is not None:
        name = find_device(device, "asarray").name
        if not isinstance(x, Array):
            check_program(name, "asarray")
    ambient = get_context().device
    if not isinstance(x, Array) or (device is None and ambient is None):
        return x
    return x.to_device(ambient.device.name if device is None else device)


def _make_array(obj: Any, dtype: Any, copy: bool | None) -> Any:
    """Returns the array of `asarray`, on the CPU."""
    wanted = None if dtype is None else to_dtype(dtype, "asarray")
    x = as_operand(obj, "asarray", "obj", wanted)
    if wanted is None and getattr(x, "weak", False):
        wanted = dtype_of(x)  # the array of a number keeps its dtype where it meets others
    if isinstance(x, Array):
        if (wanted is None or wanted == x.spec.dtype) and not copy:
            return x if wanted is None else with_weakness(x, False)
        if type(x) is not Array:  # on another device
            changed = wanted not in (None, x.spec.dtype)
            return ew.convert(x, dtype=wanted) if changed else with_weakness(ew.copy(x), False)
    elif hasattr(x, "spec"):
        if wanted is None:
            return x
        return with_weakness(x if x.spec.dtype == wanted else ew.convert(x, dtype=wanted), False)
    if copy is False and (isinstance(obj, (list, tuple)) or dtypes.is_scalar(obj)):
        problem = f"a {type(obj).__name__} cannot be an array without a copy."
        raise user_error(ArgumentError, "asarray", problem, fix="drop copy=False.")
    data = np.asarray(astype(x, wanted or dtypes.scalar_dtype(x), "asarray") if dtypes.is_scalar(x) else x)
    if wanted is not None and data.dtype != wanted:
        if copy is False:
            problem = f"{data.dtype.name} to {wanted.name} needs a copy."
            raise user_error(ArgumentError, "asarray", problem, fix="drop copy=False.")
        if isinstance(obj, (list, tuple, range)) and dtypes.is_integer(wanted):
            _check_range(data, wanted)
        if dtypes.is_complex(data.dtype) and not dtypes.is_complex(wanted):
            problem = f"{data.dtype.name} to {wanted.name} would drop the imaginary part."
            fix = "take nnp.real(obj) first."
            raise user_error(DTypeError, "asarray", problem, operands={"obj": spec_of(data)}, fix=fix)
        data = cast_array(data, wanted)
    elif copy:
        data = np.array(data)
    return Array(data)


def _check_range(data: NDArray, wanted: dtypes.DType) -> None:
    """Raises DTypeError for listed numbers that an integer dtype does not hold, as for a number by itself."""
    if dtypes.is_complex(data.dtype):
        return
    if dtypes.is_float(data.dtype):
        lower, upper = limits(data.dtype, wanted)
        outside = data[~((data > lower) & (data < upper))]  # NaN is outside, too
    else:
        info = np.iinfo(wanted)
        outside = data[(data < info.min) | (data > info.max)]
    if outside.size:
        fix = "use a wider dtype, or convert with .astype(...): integers wrap around there, floats are limited."
        raise user_error(DTypeError, "asarray", f"the number {outside[0]} does not fit into {wanted.name}.", fix=fix)


def as_value(x: Any) -> Any:
    """Returns an array or a tracer for anything a command takes: numbers are wrapped, NumPy arrays, too, on the ambient device."""
    if hasattr(x, "spec"):
        return x
    if dtypes.is_scalar(x):
        return Array(np.asarray(astype(x, dtypes.exact_dtype(x), "argument")), weak=dtypes.weakness_of(x))
    found = dlpack.read(x) if is_foreign(type(x)) else np.asarray(x)
    if hasattr(found, "spec"):  # on a GPU
        return found
    value = Array(found, weak=getattr(x, "weak", False))
    device = get_context().device
    return value if device is None else device.take(value)


def as_command_operand(x: Any) -> Any:
    """Likewise, for a command that is called as it is: Python numbers, which are constants of rules, have their default dtype."""
    return as_value(dtypes.scalar_dtype(x).type(x) if dtypes.is_scalar(x) else x)


def numpy_error(tracer: Any) -> TraceError:
    """Returns the error for handing a value that is being differentiated to NumPy."""
    found = numpy_remedy(tracer) or "the function of the same name in nnc.numpy"
    problem = f"{tracer.shown} is being differentiated; NumPy would lose the derivative."
    fix = f"use {found}, or nnc.stop_gradient(x) where no derivative is wanted."
    return user_error(TraceError, "conversion to a NumPy array", problem, fix=fix)


def concrete_error(tracer: Any, what: str, fix: str = "") -> TraceError:
    """Returns the error for asking an abstract tracer for its value."""
    made = f" (made at {tracer.source})" if tracer.source is not None else ""
    problem = f"the value of {tracer.shown}{made} is not known while the function is traced."
    return user_error(TraceError, what, problem, fix=fix or remedy(tracer, what))
