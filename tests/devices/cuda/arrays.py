"""A stand-in for CuPy's arrays: they take part in NumPy's functions by its protocols, and never become NumPy's by themselves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

_NAMES = Path(__file__).with_name("functions_of_cupy.txt")  # CuPy 14.2: functions, and attributes of its arrays
CUPY = frozenset(_NAMES.read_text().split())


class Owner:
    """Lends NumPy the elements of an array, which it keeps.

    Args:
        array: has `held`, an array of NumPy.
    """

    def __init__(self, array: Any) -> None:
        self._array, self.__array_interface__ = array, array.held.__array_interface__


class CupyArray:
    """Elements that the host cannot read."""

    __slots__ = ("_memory", "address", "held", "order")

    def __init__(self, held: Any, address: int = 0, memory: Any = None, order: Any = None) -> None:
        self.held, self.address, self._memory = held, address, memory
        self.order = order  # lets a stream wait for CuPy's present one

    @property
    def data(self) -> Any:
        assert self.address, "the address of a result is not known"
        return SimpleNamespace(ptr=self.address)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        assert self.address and stream != 0
        if stream != -1:
            self.order(stream or 1)
        return np.asarray(Owner(self)).__dlpack__(max_version=max_version)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        if (
            method != "__call__"
            or ufunc.__name__ not in CUPY
            or any(isinstance(x, np.ndarray) and x.ndim for x in inputs)
        ):
            return NotImplemented
        return wrap(ufunc(*map(unwrap, inputs), **{name: unwrap(x) for name, x in given.items()}))

    def __array_function__(self, function: Any, types: Any, args: Any, given: Any) -> Any:
        module = function.__module__.partition(".")[2]
        if f"{module}.{function.__name__}".lstrip(".") not in CUPY:
            return NotImplemented
        return wrap(function(*map(unwrap, args), **{name: unwrap(x) for name, x in given.items()}))

    def __getattr__(self, name: str) -> Any:
        if f"ndarray.{name}" not in CUPY:
            raise AttributeError(name)
        found = getattr(self.held, name)
        if not callable(found):
            return wrap(found)
        return lambda *args, **given: wrap(found(*map(unwrap, args), **given))

    def __getitem__(self, key: Any) -> Any:
        return wrap(self.held[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        self.held[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self.held)

    def __bool__(self) -> bool:
        return bool(self.held)

    def __int__(self) -> int:
        return int(self.held)

    def __float__(self) -> float:
        return float(self.held)


def _operator(name: str) -> Any:
    def method(self: CupyArray, *others: Any) -> Any:
        if any(isinstance(x, np.ndarray) and x.ndim for x in others):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return wrap(getattr(self.held, name)(*map(unwrap, others)))

    return method


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert", "abs", *_BINARY, *(f"r{name}" for name in _BINARY)):
    setattr(CupyArray, f"__{_name}__", _operator(f"__{_name}__"))


def _in_place(name: str) -> Any:
    def method(self: CupyArray, other: Any) -> Any:
        self.held[...] = _operator(f"__{name}__")(self, other).held
        return self

    return method


for _name in _BINARY:
    setattr(CupyArray, f"__i{_name}__", _in_place(_name))


def wrap(x: Any) -> Any:
    """Arrays as CuPy's, in tuples too; of NumPy's numbers, which CuPy does not make, arrays without axes."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(wrap, x)) if type(x) in (tuple, list) else tuple(map(wrap, x))
    return CupyArray(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x


def unwrap(x: Any) -> Any:
    """The held arrays."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(unwrap, x))
    return x.held if isinstance(x, CupyArray) else x
