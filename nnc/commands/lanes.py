"""Runs functions that are written in single operations on NumPy arrays: each is recorded once for its dtypes, and then replayed.

To replay a list of NumPy's functions takes a third of the time in which Python objects carry arrays from one operation to the
next. A value that is computed twice is recorded once, and long arrays are taken in blocks, whose intermediate values stay in the
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.records import record

# elements of a block: 64 KiB of float64, so that a few intermediate values fit a cache of the second level
BLOCK = 1 << 13
NDArray = np.ndarray[Any, Any]
Step = tuple[Callable[..., Any], Callable[[Any], Sequence[Any]], int]
_EXACT = {"sqrt": np.sqrt, "fabs": np.abs, "floor": np.floor, "rint": np.rint}


class OnArrays:
    """The function of arrays of one shape that a function of `Lanes` computes element by element.

    Example:
        >>> OnArrays(lambda x, y: (x < y).choose(x * 2, 0.0))(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
        array([2., 0.])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._programs: dict[tuple[dtypes.DType, ...], Program] = {}

    def __call__(self, *arrays: Any) -> Any:
        """Returns the result for arrays of one shape, in steps that are recorded at the first call with their dtypes."""
        of = tuple([x.dtype for x in arrays])
        program = self._programs.get(of)
        if program is None:
            recorder = Recorder()
            program = recorder.finish(self._function(*map(recorder.operand, of)))
            self._programs[of] = program
        return program(*arrays)


@record
class Program:
    """A program on registers. A step is a function, the getter of its operands from the registers, and the register of its
    result.

    Attributes:
        registers: the constants, in their registers; None in all others. The operands are put into the first ones.
        steps: the steps, in the order in which they run.
        result: the register of the result.
        dtype: the dtype of the result.
    """

    registers: tuple[Any, ...]
    steps: tuple[Step, ...]
    result: int
    dtype: dtypes.DType

    def __call__(self, *arrays: Any) -> Any:
        """Returns the result for arrays of one shape."""
        size = arrays[0].size
        if size <= BLOCK:
            return self._run(arrays)
        flat = [x.reshape(-1) for x in arrays]
        out = np.empty(size, self.dtype)
        for at in range(0, size, BLOCK):
            out[at : at + BLOCK] = self._run([x[at : at + BLOCK] for x in flat])
        return out.reshape(arrays[0].shape)

    def _run(self, arrays: Sequence[Any]) -> Any:
        registers = list(self.registers)
        registers[: len(arrays)] = arrays
        for function, operands, place in self.steps:
            registers[place] = function(*operands(registers))
        return registers[self.result]


class Recorder:
    """Records the steps of a function on `Lanes`, which stand for values and are numbered in the order in which they are made."""

    def __init__(self) -> None:
        self._samples: list[Any] = []  # of one element each, by which the dtype of a value is known
        self._constants: dict[int, NDArray] = {}
        self._known: dict[Any, Lanes] = {}
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...], int]] = []

    def operand(self, dtype: dtypes.DType) -> Lanes:
        """One more operand."""
        return self._value(np.ones(1, dtype))

    def _value(self, sample: NDArray) -> Lanes:
        self._samples.append(sample)
        return Lanes(self, len(self._samples) - 1, sample.dtype)

    def constant(self, value: float, dtype: dtypes.DType) -> Lanes:
        """Returns a number as a constant of a dtype."""
        key = (repr(value), dtype)  # -0.0 is equal to 0.0
        if key not in self._known:
            found = self._known[key] = self._value(np.asarray(value, dtype))
            self._constants[found.number] = self._samples[found.number]
        return self._known[key]

    def apply(self, key: Any, function: Callable[..., Any], *operands: Lanes) -> Lanes:
        """Returns the value of a function of NumPy, which `key` tells from all others; the value of an equal step where there is
        one.
        """
        numbers = tuple([x.number for x in operands])
        if (key, numbers) not in self._known:
            found = self._value(function(*[self._samples[i] for i in numbers]))
            self._known[key, numbers] = found
            self._steps.append((function, numbers, found.number))
        return self._known[key, numbers]

    def finish(self, result: Lanes) -> Program:
        """Returns the program. A register is used again once nobody reads it any more, so that memory of few arrays is touched."""
        last = {number: i for i, (_, numbers, _) in enumerate(self._steps) for number in numbers}
        made = {number for _, _, number in self._steps}
        places = {number: i for i, number in enumerate(n for n in range(len(self._samples)) if n not in made)}
        count, free, steps = len(places), list[int](), list[Step]()
        for i, (function, numbers, number) in enumerate(self._steps):
            read = [places[x] for x in numbers]
            free += [places[x] for x in {*numbers} & made if last[x] == i and x != result.number]
            if not free:
                free, count = [count], count + 1
            places[number] = free.pop()
            steps.append((function, _getter(read), places[number]))
        registers: list[Any] = [None] * count
        for number, value in self._constants.items():
            registers[places[number]] = value
        return Program(tuple(registers), tuple(steps), places[result.number], result.dtype)


def _getter(places: Sequence[int]) -> Callable[[Any], Sequence[Any]]:
    """Returns a function that takes the values at some places out of a list."""
    first = places[0]
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(first, first + 1))


def _operator(function: np.ufunc) -> Callable[[Lanes, Any], Lanes]:
    """Returns the method that records a function of a value and another operand."""
    return lambda self, y: self.recorder.apply(function, function, self, self._same(y))


def _reflected(function: np.ufunc) -> Callable[[Lanes, Any], Lanes]:
    """Returns the method that records a function of another operand and a value."""
    return lambda self, y: self.recorder.apply(function, function, self._same(y), self)


class Lanes:
    """A value that is recorded, with the methods of the code generator's terms (`nnc.lower.kernels.math.terms.Term`)."""

    __slots__ = ("dtype", "number", "recorder")

    def __init__(self, recorder: Recorder, number: int, dtype: dtypes.DType) -> None:
        self.recorder, self.number, self.dtype = recorder, number, dtype

    def _same(self, y: Any) -> Lanes:
        """`y`, where a number is a constant of this dtype."""
        return y if isinstance(y, Lanes) else self.recorder.constant(y, self.dtype)

    __add__ = __radd__ = _operator(np.add)
    __mul__ = __rmul__ = _operator(np.multiply)
    __sub__, __rsub__ = _operator(np.subtract), _reflected(np.subtract)
    __truediv__, __rtruediv__ = _operator(np.divide), _reflected(np.divide)
    __and__, __or__, __xor__ = map(_operator, (np.bitwise_and, np.bitwise_or, np.bitwise_xor))
    __lshift__, __rshift__ = _operator(np.left_shift), _operator(np.right_shift)
    __lt__, __le__, __gt__ = map(_operator, (np.less, np.less_equal, np.greater))

    def __neg__(self) -> Lanes:
        return self.recorder.apply(np.negative, np.negative, self)

    def is_nan(self) -> Lanes:
        """Whether an element is no number."""
        return self.recorder.apply(np.isnan, np.isnan, self)

    def choose(self, x: Any, y: Any) -> Lanes:
        """x where this bool holds, else y; one of them is a Lanes."""
        like = x if isinstance(x, Lanes) else y
        return self.recorder.apply(np.where, np.where, self, like._same(x), like._same(y))

    def choose_rarely(self, make: Callable[[], Lanes], otherwise: Lanes) -> Lanes:
        """Returns `make()` where this bool holds, else `otherwise`; it holds for few elements."""
        return self.choose(make(), otherwise)

    def _view(self, dtype: str) -> Lanes:
        return self.recorder.apply(("view", dtype), methodcaller("view", dtype), self)

    def bits(self) -> Lanes:
        """Returns the bit pattern, as an unsigned integer."""
        return self._view(f"u{self.dtype.itemsize}")

    def as_float(self) -> Lanes:
        """Returns the float of a bit pattern."""
        return self._view(f"f{self.dtype.itemsize}")

    def to(self, dtype: dtypes.DType) -> Lanes:
        """Returns the value in another dtype."""
        return self.recorder.apply(("to", dtype), methodcaller("astype", dtype, copy=False), self)

    def intrinsic(self, name: str) -> Lanes:
        """Returns a function that IEEE 754 defines to the last bit."""
        return self.recorder.apply(name, _EXACT[name], self)
