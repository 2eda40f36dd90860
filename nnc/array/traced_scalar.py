"""Arrays without axes that are made of traced sizes (nnc.base.traced_size), such as the divisor of a mean.

A trace takes them as inputs, as it takes arrays from outside, so that they keep their origin on the way through other
traces. nnc.compiled.replay makes constants of these inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.base.dtypes import DType, Weakness
from nnc.base.size import Evaluation
from nnc.base.traced_size import evaluated, key_of
from nnc.graph.spec import TensorSpec

Convert = Callable[[Any], Any]  # of a number to a NumPy scalar


class TracedScalar:
    """A number made of sizes, in a dtype.

    Args:
        number: the number, or another such array.
        dtype: its dtype.
        convert: converts the number's value.
        weak: whether it takes the dtype of arrays that it meets.
    """

    __slots__ = ("_convert", "_number", "root", "spec", "weak")
    __array_ufunc__ = None

    def __init__(self, number: Any, dtype: DType, convert: Convert, weak: Weakness) -> None:
        self._number, self._convert, self.weak = number, convert, weak
        self.spec = TensorSpec((), dtype)
        self.root = self  # the one of this value that is not weak

    @classmethod
    def of(cls, number: Any, dtype: DType, convert: Convert) -> TracedScalar:
        """Returns the one array of a number in a dtype."""
        key = _key(number), dtype
        known = _sizes(number).scalars
        if key not in known:
            known[key] = cls(number, dtype, convert, False)
        found: TracedScalar = known[key]
        return found

    def as_weak(self, weak: Weakness) -> TracedScalar:
        """Returns the same number with another weakness."""
        found = TracedScalar(self._number, self.spec.dtype, self._convert, weak)
        found.root = self.root
        return found

    @property
    def value(self) -> Any:
        """The value for the sizes of the trace."""
        return self._convert(self._number.value)

    def at(self, values: Evaluation) -> Any:
        """Returns the value for other sizes."""
        number = self._number
        return self._convert(number.at(values) if type(number) is TracedScalar else evaluated(number, values))

    def fix(self) -> Any:
        """Returns the value; the sizes that it is made of are then the only ones for which the trace is right."""
        self._number.fix()
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.fix(), dtype)


def _key(number: Any) -> Any:
    if type(number) is TracedScalar:
        return _key(number._number), number.spec.dtype, number.weak
    return key_of(number)


def _sizes(number: Any) -> Any:
    return _sizes(number._number) if type(number) is TracedScalar else number.sizes
