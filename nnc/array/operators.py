"""Operators, attributes and methods of arrays, which tracers share.

`nnc.numpy` adds methods that are also functions when it is imported (`array_method`); type checkers see them in `NamedMethods`.
Short methods that are called often (`float(x)`, `x ** 2`) cut tracebacks themselves, without the frame that a decorator would
add.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeVar

import numpy as np

from nnc.array.at import AtIndexer
from nnc.array.indexing import getitem
from nnc.array.matmul import matmul
from nnc.array.promote import apply, as_operand, astype, is_weak, with_weakness
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.shape import transpose
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.names import names_without_missing
from nnc.errors.tracebacks import api_boundary, cut_traceback
from nnc.graph import Command, TensorSpec, spec_of

if TYPE_CHECKING:
    from nnc.array.array import Array
    from nnc.array.likes import ArrayLike, Index
    from nnc.numpy import creation, manipulation, methods, moments, reductions, repetition, searching

NDArray = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])
Operator = Callable[[Any, "ArrayLike"], "Array"]


class NamedMethods:
    """Declares the methods that `nnc.numpy` adds to type checkers, each as the function that it is."""

    __slots__ = ()

    if TYPE_CHECKING:
        __array_namespace__ = methods.__array_namespace__
        all = reductions.all
        any = reductions.any
        argmax = reductions.argmax
        argmin = reductions.argmin
        argpartition = searching.argpartition
        argsort = searching.argsort
        astype = creation.astype
        choose = searching.choose
        clip = methods.clip
        compress = methods.compress
        conj = methods.conj
        conjugate = methods.conjugate
        copy = creation.copy
        cumprod = reductions.cumprod
        cumsum = reductions.cumsum
        diagonal = manipulation.diagonal
        dot = methods.dot
        flatten = methods.flatten
        max = reductions.max
        mean = moments.mean
        min = reductions.min
        nonzero = searching.nonzero
        partition = searching.partition
        prod = reductions.prod
        ptp = reductions.ptp
        ravel = manipulation.ravel
        repeat = repetition.repeat
        reshape = methods.reshape
        round = methods.round
        searchsorted = searching.searchsorted
        sort = searching.sort
        squeeze = manipulation.squeeze
        std = moments.std  # type: ignore[has-type]  # the two modules know each other
        sum = reductions.sum
        swapaxes = manipulation.swapaxes
        take = searching.take
        tobytes = methods.tobytes
        trace = manipulation.trace
        transpose = methods.transpose
        var = moments.var  # type: ignore[has-type]


def _binary(command: Command, to: Any = None) -> tuple[Operator, Operator]:
    def forward(self: Any, other: Any) -> Any:
        return apply(command, self, other, to=to) if _is_operand(other) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return apply(command, other, self, to=to) if _is_operand(other) else NotImplemented

    forward.__name__ = reflected.__name__ = command.name  # for messages
    return specialised(2)(forward), specialised(2)(reflected)


def _is_operand(x: Any) -> bool:
    kind = type(x)
    return (
        hasattr(kind, "spec")
        or issubclass(kind, (np.ndarray, np.generic, list, tuple, bool, int, float, complex))
        or is_foreign(kind)
    )


@specialised(1)
def power(x: Any, y: Any) -> Array:
    """`x ** y`; a Python integer exponent is static, so its derivative is right at 0, too."""
    x, y = as_operand(x, "power"), as_operand(y, "power")
    if _is_counted(x, y):
        base: Any = ew.convert(x, dtype=dtypes.uint64)  # where all arithmetic is that of the dtype, modulo 2**64
        exponent: Any = astype(y, dtypes.uint64, "power")
        exponent = exponent if dtypes.is_scalar(y) else with_weakness(exponent, False)
        result = apply(ew.pow_, base, exponent, where="power")
        return ew.convert(result, dtype=spec_of(x).dtype)
    if isinstance(y, int) and not isinstance(y, bool) and not dtypes.is_scalar(x):
        weak = is_weak(x)
        if isinstance(x, (np.ndarray, np.generic)):
            x = ew.copy(x)
        if not dtypes.is_bool(x.spec.dtype):
            return with_weakness(ew.integer_pow(x, exponent=y), weak)
    return apply(ew.pow_, x, y, where="power")


def _is_counted(x: Any, y: Any) -> bool:
    """Whether `x ** y` is that of integers and a Python integer which is not known, or has more than 63 bits."""
    if dtypes.is_scalar(x) or is_weak(x) or not dtypes.is_integer(spec_of(x).dtype):
        return False
    if dtypes.is_scalar(y):
        return isinstance(y, int) and not -(2**63) <= y < 2**63
    return bool(is_weak(y)) and dtypes.is_integer(y.spec.dtype)


def _unary(command: Command) -> Callable[[Any], Array]:
    return specialised(1)(lambda self: apply(command, self))


class ArrayMethods(NamedMethods):
    """NumPy's operators and attributes, for anything that has a `spec`.

    Methods that are also functions (`x.sum()`, `x.reshape(...)`) are added by the function's own module with `array_method`.

    Example:
        >>> isinstance(nnp.ones(2), nnp.ndarray), isinstance(np.ones(2), nnp.ndarray)
        (True, False)
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100
    __pandas_priority__ = 5000  # above the priority of pandas' tables (4000), which leave operators to us then
    spec: TensorSpec
    weak: dtypes.Weakness
    concrete: Callable[..., NDArray]

    def __dir__(self) -> list[str]:
        return names_without_missing(type(self), super().__dir__())

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return self.spec.shape

    @property
    def dtype(self) -> dtypes.DType:
        """Element type."""
        spec = self.spec
        return spec.dtype if self.weak is not dtypes.NUMBER else dtypes.shown_dtype(spec.dtype, dtypes.NUMBER)

    @property
    def shown(self) -> TensorSpec:
        """Shape and dtype as it shows them; `spec` has the dtype in memory."""
        return self.spec if self.weak is not dtypes.NUMBER else self.spec.update(dtype=self.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.spec.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    @specialised(1)
    def T(self) -> Array:
        """The axes reversed."""
        return transpose(self, permutation=tuple(reversed(range(self.ndim))))

    @property
    @specialised(1)
    def mT(self) -> Array:
        """The last two axes swapped."""
        if self.ndim < 2:
            problem = "a matrix transpose needs at least two axes."
            fix = "use x[:, None] to make a column of a vector."
            raise user_error(ArgumentTypeError, "mT", problem, operands={"x": self.shown}, fix=fix)
        return transpose(self, permutation=(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def real(self: Any) -> Array:
        """The real part."""
        return ew.real(self) if dtypes.is_complex(self.dtype) else self

    @property
    def imag(self: Any) -> Array:
        """The imaginary part; zeros for real arrays."""
        return (
            ew.imag(self) if dtypes.is_complex(self.dtype) else with_weakness(constants.full_like(self, 0), self.weak)
        )

    @property
    def at(self: Any) -> AtIndexer:
        """Functional updates: `x.at[i].set(v)`; see `AtPlace` for the other methods. Each returns a new array."""
        return AtIndexer(self)

    def as_weak(self, weak: dtypes.Weakness = True) -> Array:
        """Returns the same value, taking the dtype of the array it meets, as a Python scalar does.

        Args:
            weak: its weakness; False makes it strong.
        """
        twin: Any = copy.copy(self)
        object.__setattr__(twin, "weak", weak)
        return twin

    # -- operators -------------------------------------------------------------------------------------------------

    __add__, __radd__ = _binary(ew.add)
    __sub__, __rsub__ = _binary(ew.sub)
    __mul__, __rmul__ = _binary(ew.mul)
    __truediv__, __rtruediv__ = _binary(ew.div, dtypes.to_float)
    __floordiv__, __rfloordiv__ = _binary(ew.floor_divide)
    __mod__, __rmod__ = _binary(ew.remainder)
    __and__, __rand__ = _binary(ew.bitwise_and)
    __or__, __ror__ = _binary(ew.bitwise_or)
    __xor__, __rxor__ = _binary(ew.bitwise_xor)
    __lshift__, __rlshift__ = _binary(ew.shift_left)
    __rshift__, __rrshift__ = _binary(ew.shift_right)
    __eq__: ClassVar[Operator] = _binary(ew.equal)[0]  # type: ignore[assignment]  # not a bool, as object has it
    __ne__: ClassVar[Operator] = _binary(ew.not_equal)[0]  # type: ignore[assignment]
    __lt__ = _binary(ew.less)[0]
    __le__ = _binary(ew.less_equal)[0]
    __gt__ = _binary(ew.greater)[0]
    __ge__ = _binary(ew.greater_equal)[0]
    __neg__ = _unary(ew.neg)
    __abs__ = _unary(ew.abs_)
    __invert__ = _unary(ew.bitwise_not)

    def __pos__(self: Any) -> Array:
        return self

    def __pow__(self, other: ArrayLike) -> Array:
        try:
            return power(self, other) if _is_operand(other) else NotImplemented
        except BaseException as error:
            cut_traceback(error)
            raise

    def __rpow__(self, other: ArrayLike) -> Array:
        try:
            return power(other, self) if _is_operand(other) else NotImplemented
        except BaseException as error:
            cut_traceback(error)
            raise

    @specialised(2)
    def __matmul__(self, other: ArrayLike) -> Array:
        return matmul(self, other)

    @specialised(2)
    def __rmatmul__(self, other: ArrayLike) -> Array:
        return matmul(other, self)

    @api_boundary
    def __divmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        return self // other, self % other

    @api_boundary
    def __rdivmod__(self, other: ArrayLike) -> tuple[Array, Array]:
        return other // self, other % self

    @specialised(1)
    def __getitem__(self, index: Index) -> Array:
        return getitem(self, index)

    # -- containers, NumPy ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        try:
            if not self.ndim:
                fix = "use x.size, or index an array with axes."
                raise user_error(ArgumentTypeError, "len", "a 0-d array has no length.", fix=fix)
            return self.shape[0]
        except BaseException as error:
            cut_traceback(error)
            raise

    @api_boundary
    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise user_error(
                ArgumentTypeError, "iter", "a 0-d array cannot be iterated over.", fix="use the value itself."
            )
        return (getitem(self, i) for i in range(self.shape[0]))

    @api_boundary
    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any()) if _is_operand(value) else False

    # -- values -----------------------------------------------------------------------------------------------------

    def item(self, *index: int) -> Any:
        """Returns the one element as a Python number, or the element at an index, where the value is known.

        Args:
            *index: position: one number of the flattened array, or one for each axis; none where there is one element.
        """
        try:
            return self.concrete("item").item(*index) if index else _one_element(self, "item").item()
        except BaseException as error:
            cut_traceback(error)
            raise

    @api_boundary
    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python numbers, where the value is known."""
        return self.concrete("tolist").tolist()

    def __bool__(self) -> bool:
        try:
            return bool(_one_element(self, "bool"))
        except BaseException as error:
            cut_traceback(error)
            raise

    def __int__(self) -> int:
        try:
            return int(_one_element(self, "int"))
        except BaseException as error:
            cut_traceback(error)
            raise

    def __float__(self) -> float:
        try:
            return float(_one_element(self, "float"))
        except BaseException as error:
            cut_traceback(error)
            raise

    @api_boundary
    def __complex__(self) -> complex:
        return complex(_one_element(self, "complex"))

    @api_boundary
    def __index__(self) -> int:
        if self.ndim or not dtypes.is_integer(self.dtype):
            problem = "only 0-d integer arrays can be an index."
            fix = "convert with int(x), or x.astype(int)."
            raise user_error(ArgumentTypeError, "index", problem, operands={"x": self.shown}, fix=fix)
        return int(self.concrete("index"))

    @api_boundary
    def __round__(self, ndigits: int | None = None) -> Array:
        return self.round(ndigits or 0)

    @api_boundary
    def __setitem__(self, index: Never, value: Never) -> None:
        problem = "nnc arrays are immutable."
        fix = "write x = x.at[index].set(value) (or .add, .multiply, .min, .max)."
        raise user_error(ArgumentTypeError, "x[...] = value", problem, operands={"x": self.shown}, fix=fix)

    @api_boundary
    def __delitem__(self, index: Never) -> None:
        problem = "nnc arrays are immutable."
        fix = "select the rest, with x[mask] or nnp.delete."
        raise user_error(ArgumentTypeError, "del x[...]", problem, operands={"x": self.shown}, fix=fix)

    @api_boundary
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's operators with an nnc operand on the right give nnc values; other NumPy functions take concrete arrays only."""
        if method == "__call__" and not kwargs and ufunc.__name__ in _UFUNCS:
            return _UFUNCS[ufunc.__name__](*inputs)
        for x in kwargs.get("out", ()):
            if isinstance(x, ArrayMethods):
                problem = "nnc arrays are immutable."
                fix = f"write x = np.{ufunc.__name__}(...)."
                raise user_error(
                    ArgumentTypeError, f"np.{ufunc.__name__}(..., out=x)", problem, operands={"x": x.spec}, fix=fix
                )
        arrays = [np.asarray(x) if isinstance(x, ArrayMethods) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": _binary(ew.add)[0], "subtract": _binary(ew.sub)[0], "multiply": _binary(ew.mul)[0],
    "divide": _binary(ew.div, dtypes.to_float)[0], "floor_divide": _binary(ew.floor_divide)[0],
    "remainder": _binary(ew.remainder)[0], "power": power, "matmul": matmul, "equal": _binary(ew.equal)[0],
    "not_equal": _binary(ew.not_equal)[0], "less": _binary(ew.less)[0], "less_equal": _binary(ew.less_equal)[0],
    "greater": _binary(ew.greater)[0], "greater_equal": _binary(ew.greater_equal)[0],
    "bitwise_and": _binary(ew.bitwise_and)[0], "bitwise_or": _binary(ew.bitwise_or)[0],
    "bitwise_xor": _binary(ew.bitwise_xor)[0], "left_shift": _binary(ew.shift_left)[0],
    "right_shift": _binary(ew.shift_right)[0],
}  # fmt: skip


def array_method(function: F) -> F:
    """Makes a function of nnc.numpy, whose other arguments are settings, a method of arrays and tracers, too."""
    method = specialised(1)(function)
    setattr(ArrayMethods, function.__name__, method)
    return method


def _one_element(x: ArrayMethods, target: str) -> NDArray:
    data = x.concrete(target)
    if x.size != 1:
        problem = f"an array of {x.size} elements has no single {target} value."
        fix = "reduce it first (x.sum(), x.any(), x.all()), or index one element."
        raise user_error(ArgumentTypeError, target, problem, operands={"x": x.spec}, fix=fix)
    return data.reshape(())
