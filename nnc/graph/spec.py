"""Specs: facts about a tensor before it has a value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import is_
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from nnc.base.dtypes import DType, as_dtype
from nnc.base.fork import new_lock
from nnc.base.size import Size, hint
from nnc.device.dlpack import is_foreign, read

__all__ = ["STRIDED", "TensorSpec", "spec_of"]

MOST_AXES = 64  # of an array, as in NumPy, whose arrays hold the elements
STRIDED = "strided"
"""The layout of tensors whose elements lie in row-major order.

Example:
    >>> TensorSpec((2,), "float32").layout == STRIDED
    True
"""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False)
class TensorSpec:
    """Shape, dtype and layout of a tensor.

    `layout` is "strided" or the name of a blocked layout, in which a tensor is a row of elements (nnc.commands.pack). A change of
    layout or dtype is always a node of the graph, so two specs either are equal or need an explicit command between them. The
    device is no part of it: a graph runs on any device, and a program on one.

    Equal specs are one object, so that comparing and hashing them costs nothing: every call of a compiled function and every
    eager command does both. Facts that follow from the fields are kept beside them: passes ask for them all the time.

    `ndim` is the number of axes, `size` the number of elements, `nbytes` their bytes, without padding.

    Args:
        shape: size of each axis.
        dtype: element type.
        layout: how the elements lie: "strided", or the name of a blocked layout.

    Example:
        >>> str(TensorSpec((2, 3), "float32")), TensorSpec((2, 3), "float32").nbytes
        ('float32[2,3]', 24)
    """

    shape: tuple[int, ...]
    dtype: DType
    layout: str = STRIDED
    ndim: int = field(init=False, repr=False)
    size: int = field(init=False, repr=False)
    nbytes: int = field(init=False, repr=False)

    def __new__(cls, shape: Any, dtype: Any, layout: str = STRIDED) -> TensorSpec:
        """Returns the one spec with these fields; the shape may be any sequence, the dtype anything that names one."""
        if type(shape) is not tuple:
            shape = tuple(shape)
        if not isinstance(dtype, np.dtype):
            dtype = as_dtype(dtype)
        key = shape, dtype, layout
        known = _KNOWN.get(key)
        if known is not None:
            return known
        with _LOCK:
            known = _KNOWN.get(key)
            if known is None:
                own = np.dtype(dtype.type)  # there are others that are equal, for which compiled programs look in vain
                dtype = own if own == dtype else dtype
                # NumPy's integers are equal to Python's, but no JSON
                shape = tuple([n if isinstance(n, Size) else int(n) for n in shape])
                key, size = (shape, dtype, layout), math.prod(shape)
                known = _KNOWN.get(key)
            if known is None:
                known = object.__new__(cls)
                for name, value in zip(cls.__slots__, (*key, len(shape), size, size * dtype.itemsize), strict=False):
                    object.__setattr__(known, name, value)
                _KNOWN[key] = known
            return known

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorSpec, (self.shape, self.dtype, self.layout)

    @property
    def spec(self) -> TensorSpec:
        """Itself: a spec stands for a tensor wherever only its spec is read."""
        return self

    def update(self, *, shape: Any = None, dtype: Any = None, layout: str | None = None) -> TensorSpec:
        """This spec with some fields replaced.

        Args:
            shape: instead of this spec's.
            dtype: instead of this spec's.
            layout: instead of this spec's.
        """
        return TensorSpec(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.layout if layout is None else layout,
        )

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
        return text if self.layout == STRIDED else f"{text}:{self.layout}"


_KNOWN: WeakValueDictionary[tuple[Any, ...], TensorSpec] = WeakValueDictionary()
_LOCK = new_lock()


def plain(spec: TensorSpec) -> TensorSpec:
    """Returns the spec with the hints of its sizes (`nnc.base.size`), for estimates."""
    shape = tuple(map(hint, spec.shape))
    return spec if all(map(is_, shape, spec.shape)) else spec.update(shape=shape)


def spec_of(value: Any) -> TensorSpec:
    """Returns the spec of an array, a tracer, a symbol, a NumPy array or a NumPy scalar.

    Args:
        value: an array, tracer, symbol or NumPy scalar.

    Example:
        >>> spec_of(nnp.ones((2, 3)))
        TensorSpec(shape=(2, 3), dtype=dtype('float32'), layout='strided')
    """
    spec = getattr(value, "spec", None)
    if isinstance(spec, TensorSpec):
        return spec
    data = read(value) if is_foreign(type(value)) else np.asarray(value)
    return TensorSpec(data.shape, data.dtype)
