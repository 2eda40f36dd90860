"""Registers nnc.numpy as the namespace of its arrays, with its capabilities, and makes sure that commands run.

`__array_api_version__` is the version of the Array API standard that all of nnc.numpy follows.
"""

from __future__ import annotations

from typing import Any

import nnc.trace.core.eager
import nnc.trace.core.staged_call  # noqa: F401  (both register themselves: eager execution, and specialised calls)
from nnc.array.array import name_foreign_methods
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.device import CPU
from nnc.device import devices as all_devices
from nnc.errors.names import TABLES
from nnc.numpy.interop import await_einops
from nnc.numpy.types import isdtype

__all__ = ["__array_api_version__", "__array_namespace_info__"]

__array_api_version__ = "2024.12"
"""The version of the Array API standard that all of nnc.numpy follows.

Example:
    >>> nnp.__array_api_version__
    '2024.12'
"""
name_foreign_methods(TABLES["torch.Tensor"])
await_einops()

_BEYOND = frozenset({"float16", "bfloat16"})  # dtypes that the standard does not have


class NamespaceInfo:
    """The questions that the Array API standard lets libraries ask of a namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Masks work as indices, and shapes depend on values, where values are known. NumPy's kernels end at 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Returns the device of new arrays."""
        return CPU

    def devices(self) -> list[str]:
        """Returns the devices of this machine."""
        return all_devices()

    def default_dtypes(self, *, device: object = None) -> dict[str, dtypes.DType]:
        """Returns the dtypes of new arrays."""
        return {
            "real floating": dtypes.DEFAULT_FLOAT,
            "complex floating": dtypes.DEFAULT_COMPLEX,
            "integral": dtypes.DEFAULT_INT,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: object = None, kind: Any = None) -> dict[str, dtypes.DType]:
        """Returns the standard's dtypes of a kind (see `isdtype`), by name: not float16 and bfloat16."""
        return {
            name: dtype
            for name, dtype in dtypes.BY_NAME.items()
            if name not in _BEYOND and (kind is None or isdtype(dtype, kind))
        }


@spelled
def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807  (the standard's name)
    """Returns the capabilities of this namespace, as the Array API standard describes them.

    Example:
        >>> nnp.__array_namespace_info__().default_dtypes()["real floating"]
        dtype('float32')
    """
    return NamespaceInfo()
