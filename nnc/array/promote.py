"""From NumPy's conventions to strict commands: operands become arrays of one dtype and one shape.

Commands neither convert nor broadcast; the functions users call do, through these helpers.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.array.promotion_watch import is_widened, promotion_watch
from nnc.array.traced_scalar import TracedScalar
from nnc.base import dtypes
from nnc.base.casting import cast_array
from nnc.base.context import get_context
from nnc.base.traced_size import TRACED
from nnc.commands.constants import full
from nnc.commands.elementwise import convert, equal, greater, greater_equal, less, less_equal, not_equal, select
from nnc.commands.fit import fit, misfit
from nnc.commands.shape import broadcast_to, concatenate, reshape
from nnc.device import dlpack
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.errors.errors import shorten
from nnc.graph import Command, TensorSpec, spec_of
from nnc.graph.rules import Value

if TYPE_CHECKING:
    from nnc.array.array import Array

_TRACED = frozenset({*TRACED, TracedScalar})

Operand = Any  # an array, a tracer, a NumPy array or scalar, or a Python scalar


# the classes of numbers that are operands as they are; others take a closer look
_NUMBERS = {bool, int, float, complex, *(dtype.type for dtype in dtypes.ALL)} - {np.float64, np.complex128}


NDArray = np.ndarray[Any, Any]


class Listed(np.ndarray[Any, Any]):
    """A list of Python numbers in the default dtype. `exact` keeps the digits, for the case that it meets a wider dtype."""

    exact: np.ndarray[Any, Any]


class WeakScalar(np.ndarray[Any, Any]):
    """A `numpy.float64` or `numpy.complex128`: a Python number by its class, and weak as these are. It keeps its 64 bits where it
    meets numbers alone. Integers among operands that are all weak have this form, too.
    """

    weak: dtypes.Weakness = True


class WeakNumber(WeakScalar):
    """A Python float or complex number among operands that are all weak."""

    weak = dtypes.NUMBER


def as_operand(x: Any, where: str = "asarray", name: str = "x", dtype: dtypes.DType | None = None) -> Operand:
    """Returns `x` itself where it is an array or a number; nested lists become arrays (stacked, where they hold tracers).

    Args:
        dtype: the dtype that a list will be converted to; its numbers need not fit into the default dtypes.

    Raises:
        DTypeError, ArgumentTypeError: nnc cannot make an array of `x`.
    """
    kind = type(x)
    if (
        kind in _NUMBERS
        or (kind is np.ndarray and dtypes.is_known(x.dtype))
        or hasattr(kind, "spec")
        or dtypes.is_scalar(x)
    ):
        return x
    if isinstance(x, (np.float64, np.complex128)):
        return np.asarray(x).view(WeakScalar)
    if isinstance(x, (np.ndarray, np.generic)):
        masked = sys.modules.get("numpy.ma")  # which takes long to load, and is loaded where there is a masked array
        if masked is not None and isinstance(x, masked.MaskedArray):
            problem = f"{name} is a masked array, whose mask would be lost."
            advice = "pass x.filled(value), or the data and the mask as two arrays."
            raise user_error(ArgumentTypeError, where, problem, fix=advice)
        if not dtypes.is_known(x.dtype):
            native = x.dtype.newbyteorder("=")
            if dtypes.is_known(native):
                return x.astype(native)
            fix = f"convert it to one of {', '.join(dtypes.BY_NAME)}."
            if x.dtype.hasobject:
                fix = (
                    'convert it to numbers: x.astype("float32"), in pandas x.select_dtypes("number").astype("float32").'
                )
            raise user_error(DTypeError, where, f"{name} has dtype {x.dtype}, which nnc does not have.", fix=fix)
        return x
    if isinstance(x, (list, tuple, range)):
        try:
            return _from_list(x, where, name, dtype)
        except RecursionError:
            problem = f"{name} is a {type(x).__name__} nested deeper than an array has axes, or holds itself."
            raise user_error(ShapeError, where, problem, fix="pass lists of at most 64 levels.") from None
    if isinstance(x, memoryview):
        return as_operand(np.asarray(x), where, name)
    if is_foreign(type(x)):
        return as_operand(dlpack.read(x, where, name), where, name)
    problem = f"{name} is {shorten(x)} ({type(x).__name__}), not an array or a number."
    raise user_error(ArgumentTypeError, where, problem, fix="pass an array, a number, or a (nested) list of numbers.")


def _from_list(x: Sequence[Any], where: str, name: str, dtype: dtypes.DType | None) -> Operand:
    if any(hasattr(kind, "spec") or is_foreign(kind) for kind in set(map(type, _walk(x)))):
        parts = [as_operand(part, where, name, dtype) for part in x]
        parts = broadcast(*promote(*parts, where=where), where=where)
        joined = concatenate(*[reshape(part, shape=(1, *spec_of(part).shape)) for part in parts], axis=0)
        return with_weakness(astype(joined, dtype or dtype_of(joined), where), False) if is_weak(joined) else joined
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise user_error(
            ShapeError, where, f"{name} is a ragged nested list: {error}.", fix="make all rows of one length."
        ) from None
    if array.dtype.kind in "Ouf":
        array = _whole_numbers(x, array, where, name, dtype)
    if array.dtype.kind in "OUSMm":
        problem = f"{name} is {shorten(x)}, which holds values that are no numbers."
        fix = "pass numbers only; strings and objects cannot be traced."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    if dtype is None and not any(issubclass(kind, (np.ndarray, np.generic)) for kind in set(map(type, _walk(x)))):
        weakest = {"b": dtypes.bool_, "i": dtypes.DEFAULT_INT, "u": dtypes.DEFAULT_INT, "f": dtypes.DEFAULT_FLOAT}
        with np.errstate(over="ignore"):  # as everywhere, a number too large for a float is infinite
            listed = array.astype(weakest.get(array.dtype.kind, dtypes.DEFAULT_COMPLEX)).view(Listed)
        listed.exact = array
        return listed
    return array


def _whole_numbers(x: Any, array: NDArray, where: str, name: str, dtype: dtypes.DType | None) -> NDArray:
    """Returns the array of a list of integers in a dtype that holds them all: NumPy makes floats of `[1, 2**63]`. Other arrays
    stay.

    Args:
        array: NumPy's array of the list, neither of bools nor of signed integers.
        where: the function that errors name.
        name: the argument that errors name.
        dtype: the wanted dtype; None: the default.
    """
    listed = (int, np.integer) if dtype is not None else int  # without a dtype, NumPy's numbers decide
    wanted = dtype or dtypes.DEFAULT_INT
    if not array.size or not all(isinstance(leaf, listed) for leaf in _walk(x)):
        return array
    _check_fits(x, where, name, wanted)
    if dtypes.is_integer(wanted):
        return np.array(x, wanted)
    return array.astype(np.float64) if array.dtype.kind == "O" else array


def _check_fits(x: Any, where: str, name: str, dtype: dtypes.DType) -> None:
    """Raises DTypeError for listed integers that the integer dtype does not hold."""
    if not dtypes.is_integer(dtype):
        return
    info = np.iinfo(dtype)
    for leaf in _walk(x):
        if not info.min <= int(leaf) <= info.max:
            fix = "make it a float, or a NumPy array of a dtype that holds it."
            raise user_error(DTypeError, where, f"{name} holds {leaf}, which does not fit into {dtype.name}.", fix=fix)


def _walk(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _walk(part)
    else:
        yield x


def shown_spec(x: Operand) -> TensorSpec:
    """Returns the spec that an operand shows: of a weak float with its default dtype."""
    return TensorSpec((), dtype_of(x)) if dtypes.is_scalar(x) else spec_of(x).update(dtype=dtype_of(x))


def is_weak(x: Operand) -> dtypes.Weakness:
    """Whether `x` takes the dtype of the array it meets: Python scalars and values made of them alone."""
    weak: dtypes.Weakness | None = getattr(x, "weak", None)
    if weak is None:
        return dtypes.weakness_of(x) if dtypes.is_scalar(x) else False
    return weak


def with_weakness(x: Value, weak: dtypes.Weakness) -> Value:
    """`x` with this weakness; a float or complex number that does not have 64 bits is `True` at most."""
    if weak is dtypes.NUMBER and _memory_dtype(x) not in WIDE:
        weak = True
    if isinstance(x, (np.generic, np.ndarray)):
        return np.asarray(x).view(WeakNumber if weak is dtypes.NUMBER else WeakScalar) if weak else x
    return x if getattr(x, "weak", weak) is weak else x.as_weak(weak)  # symbols of graphs have none


def dtype_of(x: Operand) -> dtypes.DType:
    """Returns the dtype that an operand shows; for a Python scalar its default dtype."""
    if dtypes.is_scalar(x):
        return dtypes.scalar_dtype(x)
    if getattr(x, "weak", False) is dtypes.NUMBER:
        return dtypes.shown_dtype(_memory_dtype(x), dtypes.NUMBER)
    return _memory_dtype(x)


def as_shown(x: Operand) -> Operand:
    """Returns an operand for Python code outside of traces, which sees a weak value in the dtype that it shows; others as they
    are.
    """
    return astype(x, dtype_of(x)) if is_weak(x) else x


def _memory_dtype(x: Operand) -> dtypes.DType:
    """Returns the dtype that an operand has in memory."""
    dtype = getattr(getattr(x, "spec", x), "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else spec_of(x).dtype


WIDE = frozenset((dtypes.float64, dtypes.complex128))
_IN_64_BITS = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}


def result_dtype(*xs: Operand, where: str = "promotion") -> dtypes.DType:
    """Returns the dtype that the result of these operands has for users.

    Raises:
        DTypeError: no dtype holds them all.
    """
    try:
        return _promoted(tuple([(dtype_of(x), is_weak(x)) for x in xs]))
    except TypeError as error:
        fix = "convert one operand with .astype(...)."
        raise user_error(
            DTypeError, where, f"{error}.", operands={f"operand {i}": _describe(x) for i, x in enumerate(xs)}, fix=fix
        ) from None


@lru_cache(maxsize=4096)
def _promoted(operands: tuple[tuple[dtypes.DType, bool], ...]) -> dtypes.DType:
    """Returns the dtype that operands of these dtypes, weak or not, promote to.

    Raises:
        TypeError: no dtype holds them all.
    """
    strong = [dtype for dtype, weak in operands if not weak]
    weak = [dtype for dtype, weak in operands if weak]
    if not strong:
        return reduce(dtypes.promote_types, weak)
    result = reduce(dtypes.promote_types, strong)
    return dtypes.raise_kind(result, reduce(dtypes.promote_types, weak)) if weak else result


def _describe(x: Operand) -> str:
    return repr(x) if dtypes.is_scalar(x) else str(shown_spec(x))


def to_dtype(dtype: Any, where: str, shape: Any = ()) -> dtypes.DType:
    """Returns the dtype that `dtype` names.

    Args:
        dtype: the dtype as the user wrote it.
        where: the function that the user called, for messages.
        shape: the argument for the shape, which stands before the dtype, for messages.

    Raises:
        DTypeError: nnc has no such dtype.
    """
    try:
        return dtypes.as_dtype(dtype)
    except TypeError as error:
        takes_shape = where in _SHAPED | {"full"} or where.startswith("nnc.random.")
        if takes_shape and isinstance(dtype, (int, float, complex, np.ndarray)):
            sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
            one = (
                f"pass the shape as one tuple, {where}({(*sizes, dtype)})"
                if where in _SHAPED
                else "pass a tuple as the shape"
            )
            problem = f"{shorten(dtype)} is passed as dtype, behind the shape."
            fix = f"{one}, and the arguments behind the shape by name, such as dtype=nnp.float32."
            raise user_error(DTypeError, where, problem, fix=fix) from None
        raise user_error(DTypeError, where, f"{error}.", fix="use a dtype of nnc.numpy, such as nnp.float32.") from None


_SHAPED = frozenset({"zeros", "ones", "empty"})  # functions of a shape and a dtype


def astype(x: Operand, dtype: dtypes.DType, where: str = "astype") -> Array:
    """Converts `x` to `dtype`; numbers become constants.

    Raises:
        DTypeError: a Python integer does not fit into an integer dtype.
    """
    if type(x) in _TRACED:
        return _traced_scalar(x, dtype, where)
    if isinstance(x, WeakScalar):
        x = x.item()
    if dtypes.is_scalar(x):
        try:
            return _as_number(dtype, x) if _has_one_sign(x) else _as_number.__wrapped__(dtype, x)
        except (OverflowError, TypeError, ValueError) as error:
            raise misfit(where, x, dtype, error) from None
    if isinstance(x, np.generic):
        return x if x.dtype == dtype else cast_array(x, dtype)  # type: ignore[return-value]  # stays NumPy's
    own = _memory_dtype(x)
    if own == dtype:
        return x
    if dtypes.is_integer(own) and dtypes.is_integer(dtype) and is_weak(x) and not np.can_cast(own, dtype):
        return fit(x, dtype=dtype, where=where)
    return convert(x.exact if isinstance(x, Listed) and dtypes.is_inexact(dtype) else x, dtype=dtype)


def _traced_scalar(x: Any, dtype: dtypes.DType, where: str) -> Any:
    """Converts a number that is made of sizes; `x` itself where it has this dtype."""
    weak = is_weak(x)
    if type(x) is TracedScalar and x.spec.dtype == dtype:
        return x

    def convert(value: Any) -> Any:
        return astype(with_weakness(value, weak) if type(x) is TracedScalar else value, dtype, where)

    return TracedScalar.of(x, dtype, convert)


@lru_cache(maxsize=4096, typed=True)
def _as_number(dtype: dtypes.DType, x: bool | int | float | complex) -> Any:
    """Converts a number to a dtype; a number too large for a float is infinite."""
    with np.errstate(over="ignore"):
        number = float(x) if dtype == dtypes.bfloat16 and isinstance(x, int) else x  # it takes 64 bits at most
        return dtype.type(number)


def _has_one_sign(x: bool | int | float | complex) -> bool:
    """Whether numbers equal to this one are the same number: 0.0 and -0.0 are equal."""
    return x != 0 and not isinstance(x, complex)


def promote(*xs: Any, where: str = "promotion", to: Any = None) -> list[Array]:
    """Returns the operands in their common dtype. `to` maps the common dtype to the one wanted (division leaves the integers)."""
    return _promote(as_operands(xs, where), where, to)


def promote_compared(*xs: Any, where: str) -> list[Array]:
    """Returns the operands of a search in their common dtype: integers are compared, and need not fit into each other's."""
    operands = as_operands(xs, where)
    kinds = [dtype_of(x) for x in operands]
    dtype = result_dtype(*operands, where=where)
    if all(map(dtypes.is_integer, kinds)) and not all(_lies_in(dtype, x) for x in operands):
        with contextlib.suppress(TypeError):  # no dtype holds int64 and uint64
            dtype = reduce(dtypes.promote_types, kinds)
            return [with_weakness(astype(x, dtype, where), False) for x in operands]
    return _promote(operands, where, None)


def _lies_in(dtype: dtypes.DType, x: Operand) -> bool:
    """Whether an integer is known to fit into a dtype."""
    if dtypes.is_scalar(x):
        return bool(np.iinfo(dtype).min <= x <= np.iinfo(dtype).max)
    return not is_weak(x) or NUMBERS_FIT in get_context().modes


def as_operands(xs: Sequence[Any], where: str, names: Sequence[str] = ()) -> list[Operand]:
    """Converts to operands; lists of integers beside an operand of uint64 take this dtype where it holds them all.

    Args:
        xs: arrays, numbers or lists of numbers.
        where: the function that errors name.
        names: the names of the arguments.

    Raises:
        DTypeError, ArgumentTypeError: nnc cannot make an array of an operand.
    """
    names = names or ("x",) * len(xs)
    if any(isinstance(x, (list, tuple)) for x in xs):
        kinds = {getattr(x, "dtype", None) for x in xs}
        if dtypes.uint64 in kinds:
            return [_beside_unsigned(x, where, name) for x, name in zip(xs, names, strict=True)]
        if kinds & WIDE:  # in which traced numbers of a list keep all their digits
            return [_beside_wide(x, where, name) for x, name in zip(xs, names, strict=True)]
    return [as_operand(x, where, name) for x, name in zip(xs, names, strict=True)]


def _beside_unsigned(x: Any, where: str, name: str) -> Operand:
    if isinstance(x, (list, tuple)):
        with contextlib.suppress(DTypeError):  # for example, one is negative
            made = as_operand(x, where, name, dtypes.uint64)
            if isinstance(made, np.ndarray) and made.dtype.kind in "iu" and made.size and made.min() >= 0:
                return made.astype(np.uint64)
    return as_operand(x, where, name)


def _beside_wide(x: Any, where: str, name: str) -> Operand:
    made = as_operand(x, where, name)
    if not isinstance(x, (list, tuple)) or not hasattr(made, "spec") or dtype_of(made) not in _IN_64_BITS:
        return made
    return as_operand(x, where, name, _IN_64_BITS[dtype_of(made)])


def _promote(operands: Sequence[Operand], where: str, to: Any) -> list[Value]:
    dtype = result_dtype(*operands, where=where)
    if dtype in WIDE and (watch := promotion_watch()) is not None:
        strong = [dtype_of(x) for x in operands if not is_weak(x)]
        if is_widened(dtype, strong):
            watch.note(where, dtype, {f"operand {i}": _describe(x) for i, x in enumerate(operands)})
    if to is not None:
        dtype = to(dtype)
    if all(map(is_weak, operands)):
        dtype = _IN_64_BITS.get(dtype, dtype)
        weak = weakness_of_result(dtype, operands)
        return [with_weakness(astype(x, dtype, where), weak) for x in operands]
    values = [astype(x, dtype, where) for x in operands]
    return [with_weakness(x, False) if getattr(x, "weak", False) else x for x in values]


def broadcast(*xs: Value, where: str = "broadcast") -> list[Array]:
    """Broadcasts the operands to their common shape.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    shapes = [_shape_of(x) for x in xs]
    distinct = {*shapes}
    if len(distinct) == 1:
        return list(xs)
    distinct.discard(())
    if len(distinct) == 1:  # numbers, and arrays of one shape
        (shape,) = distinct
        return [broadcast_to_shape(x, shape) for x in xs]
    try:
        shape = broadcast_shapes(*shapes)
    except ValueError:
        problem = f"shapes {' and '.join(str(s) for s in shapes)} do not broadcast together."
        operands = {f"operand {i}": spec_of(x) for i, x in enumerate(xs)}
        fix = "make sizes equal or 1, counted from the last axis; insert axes with x[:, None]."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix) from None
    return [broadcast_to_shape(x, shape) for x in xs]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that shapes broadcast to. NumPy's own function has limits of axes and elements, and takes no traced sizes.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    ndim = max(map(len, shapes), default=0)
    result = []
    for sizes in zip(*[(1,) * (ndim - len(shape)) + shape for shape in shapes], strict=True):
        wide = 1
        for n in sizes:
            if n != 1:
                if wide not in (1, n):
                    raise ValueError("shapes do not broadcast")
                wide = n
        result.append(wide)
    return tuple(result)


def broadcast_to_shape(x: Value, shape: tuple[int, ...]) -> Array:
    """`x` broadcast to `shape`; itself where it has that shape."""
    return x if _shape_of(x) == shape else broadcast_to(x, shape=shape)


def _shape_of(x: Value) -> tuple[int, ...]:
    spec = getattr(x, "spec", None)
    shape: tuple[int, ...] = np.shape(x) if spec is None else spec.shape
    return shape


def apply(command: Command, *xs: Any, where: str = "", to: Any = None) -> Value:
    """Returns an elementwise command on operands of any dtypes and shapes, promoted and broadcast as NumPy does."""
    if _is_settled(xs, to):
        return command(*xs)
    where = where or command.name.rstrip("_")
    operands = as_operands(xs, where)
    decided = compare_beyond(command, operands)
    if decided is not None:
        return decided
    result = command(*broadcast(*_promote(operands, where, to), where=where))
    return with_weakness(result, weakness_of_result(result.spec.dtype, operands))


def weakness_of_result(dtype: dtypes.DType, operands: Sequence[Operand]) -> dtypes.Weakness:
    """Returns the weakness of a result of this dtype in memory: weak are those of weak operands alone, and of integers that a
    `numpy.float64` made 64-bit floats. Bools are strong.
    """
    if dtypes.is_bool(dtype):
        return False
    if all(map(is_weak, operands)):
        wide = any(is_weak(x) is not dtypes.NUMBER and dtype_of(x) in WIDE for x in operands)
        return dtypes.NUMBER if dtype in WIDE and not wide else True
    return dtype in WIDE and all(is_weak(x) or not dtypes.is_inexact(dtype_of(x)) for x in operands)


def _is_settled(xs: Sequence[Any], to: Any) -> bool:
    """Whether operands are arrays of one spec, which need be neither promoted nor broadcast."""
    spec = getattr(xs[0], "spec", None)
    if spec is None or (to is not None and to(spec.dtype) != spec.dtype):
        return False
    for x in xs:  # noqa: SIM110  (asked in each call: a generator would cost more than the loop)
        if getattr(x, "spec", None) is not spec or is_weak(x):
            return False
    return True


# the mode in which integers are compared in the dtype of the array, into which they are known to fit
NUMBERS_FIT = "numbers fit"
_COMPARISONS: dict[Command, Callable[[int, int], bool]] = {
    equal: operator.eq, not_equal: operator.ne, less: operator.lt, less_equal: operator.le, greater: operator.gt,
    greater_equal: operator.ge,
}  # fmt: skip


def _compare_signs(command: Command, operands: Sequence[Operand], unsigned: int) -> Value:
    """Compares uint64 with signed integers, which no dtype holds together: negative ones are less than all, others fit."""
    signed = astype(operands[1 - unsigned], dtypes.int64)
    sides = [convert(x, dtype=dtypes.uint64) for x in operands]
    alike = command(*broadcast(*sides, where=command.name))
    negative = less(signed, full(shape=_shape_of(signed), dtype=dtypes.int64, value=0))
    places = (1, 0) if unsigned == 0 else (0, 1)
    decided = full(shape=_shape_of(alike), dtype=dtypes.bool_, value=_COMPARISONS[command](*places))
    return select(broadcast_to_shape(negative, _shape_of(alike)), decided, alike)


def compare_beyond(command: Command, operands: Sequence[Operand]) -> Value | None:
    """Returns the result of comparing integers with integers that lie beyond their dtype; None where both fit into one dtype."""
    if command not in _COMPARISONS:
        return None
    kinds = [dtype_of(x) for x in operands]
    weak = any(map(is_weak, operands))
    fit_in = any(map(dtypes.is_scalar, operands)) or (weak and NUMBERS_FIT in get_context().modes)
    if not fit_in and all(map(dtypes.is_integer, kinds)):
        if dtypes.uint64 in kinds and any(kind in dtypes.SIGNED for kind in kinds):
            return _compare_signs(command, operands, kinds.index(dtypes.uint64))
        if weak:  # it need not fit into the dtype of the other
            dtype = reduce(dtypes.promote_types, kinds)
            return command(*broadcast(*[astype(x, dtype) for x in operands], where=command.name))
    for place, number in enumerate(operands):
        other = operands[1 - place]
        if not (dtypes.is_scalar(number) and isinstance(number, int)) or dtypes.is_scalar(other):
            continue
        dtype = spec_of(other).dtype
        if dtypes.is_integer(dtype) and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            sides = (number, 0) if place == 0 else (0, number)
            return full(shape=np.shape(other), dtype=dtypes.bool_, value=_COMPARISONS[command](*sides))
    return None
