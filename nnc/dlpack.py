"""DLPack beyond NumPy's part of it: bfloat16 both ways, and no negative strides for libraries that know none.

NumPy exchanges no bfloat16, because that dtype is not its own. The bits travel as uint16, and the dtype that the capsule names
is rewritten: after NumPy has made a capsule, or before NumPy reads one. A capsule belongs to whoever holds it until it is
consumed, and producers make a new one for each call, so nothing else sees the change.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from nnc.dtypes import bfloat16

NDArray = np.ndarray[Any, Any]

# where the dtype's code stands in the structure that a capsule of this name points to, in bytes (DLPack's C header)
CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
UNSIGNED, BFLOAT = 1, 4  # DLPack's codes of dtypes

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _code(capsule: Any) -> ctypes.c_uint8:
    """The code of a capsule's dtype, to be read and written."""
    name = _name(capsule)
    return ctypes.c_uint8.from_address((_pointer(capsule, name) or 0) + CODE_AT[name or b""])


def export(data: NDArray, *, copy: bool | None = None, **options: Any) -> Any:
    """A capsule of `data`. An array that is walked backwards is copied: some libraries crash on negative strides.

    Raises:   BufferError: copy=False, but a copy is needed.
    """
    if any(stride < 0 for stride in data.strides):
        if copy is False:
            raise BufferError("an array with negative strides is exported as a copy only; drop copy=False")
        data, copy = data.copy(), None
    if data.dtype != bfloat16:
        return data.__dlpack__(copy=copy, **options)
    capsule = data.view(np.uint16).__dlpack__(copy=copy, **options)
    _code(capsule).value = BFLOAT
    return capsule


class _Relay:
    """Another library's array, whose bfloat16 numbers are shown to NumPy as uint16."""

    def __init__(self, array: Any) -> None:
        self.array, self.is_bfloat16 = array, False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__(**options)
        code = _code(capsule)
        self.is_bfloat16 = code.value == BFLOAT
        if self.is_bfloat16:
            code.value = UNSIGNED
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def load(array: Any) -> NDArray:
    """The elements of another library's array, without a copy where they are on the host.

    Raises:   BufferError, RuntimeError: its library, or NumPy, cannot exchange this array.
    """
    relay = _Relay(array)
    data: NDArray = np.from_dlpack(relay)
    return data.view(bfloat16) if relay.is_bfloat16 else data
