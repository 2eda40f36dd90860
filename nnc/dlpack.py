"""Memory shared with other libraries, by NumPy's protocol and by DLPack.

NumPy lacks two things of DLPack, which are here: bfloat16 both ways, and no negative strides for libraries that know none.

NumPy exchanges no bfloat16, because that dtype is not its own. The bits travel as uint16, and the dtype that the capsule names
is rewritten: after NumPy has made a capsule, or before NumPy reads one. A capsule belongs to its holder until it is
consumed, and producers make a new one for each call, so nothing else sees the change.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from nnc.dtypes import bfloat16
from nnc.errors import ArgumentTypeError, user_error

NDArray = np.ndarray[Any, Any]

# where the dtype's code stands in the structure that a capsule of this name points to, in bytes (DLPack's C header)
CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
UNSIGNED, BFLOAT = 1, 4  # DLPack's codes of dtypes
ON_HOST = frozenset((1, 3, 11, 13))  # DLPack's kinds of devices whose memory the host reads: its own, pinned, managed
HOST, OTHER = 1, 12  # DLPack's kinds of the host's own memory, and of devices that it has no kind for
DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}

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

    Raises:
        BufferError: copy=False, but a copy is needed.
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

    Raises:
        BufferError, RuntimeError: its library, or NumPy, cannot exchange this array.
    """
    relay = _Relay(array)
    data: NDArray = np.from_dlpack(relay)
    return data.view(bfloat16) if relay.is_bfloat16 else data


def read(x: Any, where: str = "asarray", name: str = "x") -> NDArray:
    """The elements of another library's array, without a copy where they are on the host and of one dtype.

    Args:
        x: an object with `__array__` or `__dlpack__`; NumPy's protocol is asked first, as most libraries answer it faster.
        where: the function that reads it, for messages.
        name: its name in messages.

    Raises:
        ArgumentTypeError: its library does not hand the elements out: it lies on another device, or carries a gradient.
    """
    _check_host(x, where, name)
    problem = ""
    if hasattr(x, "__array__"):
        try:
            return np.asarray(x)
        except (RuntimeError, TypeError) as error:
            problem = str(error)
    if hasattr(x, "__dlpack__"):  # which says more than NumPy: bfloat16
        try:
            return load(x)
        except (BufferError, RuntimeError, TypeError) as error:
            problem = problem or str(error)
    raise user_error(
        ArgumentTypeError, where, f"{name} ({_kind(x)}) cannot be read: {problem}",
        fix="pass a dense array on the host that carries no gradient: x.detach().cpu() in PyTorch, jax.device_get(x) in JAX.",
    )  # fmt: skip


def _check_host(x: Any, where: str, name: str) -> None:
    """Raises ArgumentTypeError for an array on another device: that it is copied is for the user to say."""
    if getattr(x, "is_cpu", False) is True:  # a tensor of PyTorch, which answers ten times faster so
        return
    try:
        kind, number = x.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return  # without a device, or on several: its library says whether it can be read
    if kind not in ON_HOST:
        device = f"{DEVICES.get(kind, f'device kind {int(kind)}')}:{number}"
        raise user_error(
            ArgumentTypeError, where, f"{name} ({_kind(x)}) lies on {device}, not on the host.",
            fix="copy it first: x.cpu() in PyTorch, jax.device_get(x) in JAX, x.get() in CuPy.",
        )  # fmt: skip


def _kind(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__name__}"
