"""What is known of a tensor before it has a value."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnc.dtypes import DType, as_dtype


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, dtype, layout and device of a tensor.

    `layout` is "strided" or the name of a backend's blocked layout. A change of layout, dtype or device is always a node of
    the graph, so two specs either are equal or need an explicit command between them.

    Example:
        >>> str(TensorSpec((2, 3), "float32")), TensorSpec((2, 3), "float32").nbytes
        ('float32[2,3]', 24)
    """

    shape: tuple[int, ...]
    dtype: DType
    layout: str = "strided"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple:
            object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        if not isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", as_dtype(self.dtype))

    @property
    def spec(self) -> TensorSpec:
        """Itself: a spec stands for a tensor wherever only its spec is read."""
        return self

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * self.dtype.itemsize

    def update(self, **changes: Any) -> TensorSpec:
        """This spec with some fields replaced."""
        return replace(self, **changes)

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
        if self.layout != "strided":
            text += f":{self.layout}"
        return text if self.device == "cpu" else f"{text}@{self.device}"


def spec_of(value: Any) -> TensorSpec:
    """The spec of an array, a tracer, a symbol, a NumPy array or a NumPy scalar."""
    spec = getattr(value, "spec", None)
    if isinstance(spec, TensorSpec):
        return spec
    return TensorSpec(np.shape(value), np.asarray(value).dtype)
