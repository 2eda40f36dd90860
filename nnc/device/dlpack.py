"""Memory shared with other libraries, by NumPy's protocol and by DLPack. Memory of GPUs is shared through CuPy.

NumPy lacks two things of DLPack, which are here: bfloat16 both ways, and no negative strides for libraries that know none.

NumPy exchanges no bfloat16, because that dtype is not its own, and neither does CuPy. The bits travel as uint16, and the dtype
that the capsule names is rewritten: after the library has made a capsule, or before it reads one. A capsule belongs to its holder
until it is consumed, and producers make a new one for each call, so nothing else sees the change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from nnc.base.dtypes import bfloat16
from nnc.device.kinds import find_device, interpreter_of
from nnc.errors import ArgumentTypeError, NncError, UnsupportedError, user_error

NDArray = np.ndarray[Any, Any]

# where the dtype's code stands in the structure that a capsule of this name points to, in bytes (DLPack's C header)
CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
UNSIGNED, BFLOAT = 1, 4  # DLPack's codes of dtypes
ON_HOST = frozenset((1, 3, 11, 13))  # DLPack's kinds of devices whose memory the host reads: its own, pinned, managed
# DLPack's kinds of the host's own memory, of CUDA's devices, and of those that it has no kind for
HOST, CUDA, OTHER = 1, 2, 12
DEVICES = {CUDA: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


_CLASSES = 4096  # classes whose answers are kept: more than a program has


def _is_foreign(kind: type) -> bool:
    """Whether objects of a class are arrays of another library: they have `__dlpack__` or `__array__`.

    A dataclass is a container of arrays, even if it has such methods.

    Example:
        >>> is_foreign(memoryview), is_foreign(np.ndarray)
        (False, False)
    """
    if issubclass(kind, (np.ndarray, np.generic)) or hasattr(kind, "spec") or is_dataclass(kind):
        return False
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__array__")


is_foreign: Callable[[type], bool] = lru_cache(maxsize=_CLASSES)(_is_foreign)


def _code(capsule: Any) -> ctypes.c_uint8:
    """Returns the code of a capsule's dtype, to be read and written."""
    name = _name(capsule)
    return ctypes.c_uint8.from_address((_pointer(capsule, name) or 0) + CODE_AT[name or b""])


def export(data: NDArray, *, copy: bool | None = None, **options: Any) -> Any:
    """Returns a DLPack capsule of `data`. An array with negative strides is copied, as some libraries crash on these.

    Raises:
        BufferError: copy=False, but a copy is needed.
    """
    if any(stride < 0 for stride in data.strides):
        if copy is False:
            raise BufferError("an array with negative strides is exported as a copy only; drop copy=False")
        data, copy = data.copy(), None
    is_bfloat16 = data.dtype == bfloat16
    return capsule_of(data.view(np.uint16) if is_bfloat16 else data, is_bfloat16, copy=copy, **options)


def capsule_of(array: Any, is_bfloat16: bool, **options: Any) -> Any:
    """Returns a DLPack capsule of an array of NumPy or CuPy.

    Args:
        is_bfloat16: whether the elements are bfloat16, which the library takes for uint16.
        options: the options of `__dlpack__`.
    """
    capsule = array.__dlpack__(**options)
    if is_bfloat16:
        _code(capsule).value = BFLOAT
    return capsule


class Relay:
    """Wraps another library's array, so that NumPy or CuPy can read its bfloat16 numbers as uint16.

    Args:
        array: an array with `__dlpack__`.

    Attributes:
        is_bfloat16: whether the elements are bfloat16; set when a capsule is made.
    """

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


def load(array: Any, where: str = "from_dlpack", name: str = "x") -> Any:
    """Returns the elements of another library's array, by DLPack alone and without a copy.

    Args:
        array: an array with `__dlpack__`.
        where: the function that reads it, for messages.
        name: the array's name in messages.

    Returns:
        an array of NumPy; an array of nnc where the elements lie on a GPU.

    Raises:
        ArgumentTypeError: it lies on a device that nnc does not use.
        BufferError, RuntimeError: its library, or NumPy, cannot exchange this array.
    """
    kind, number = place_of(array)
    if kind not in ON_HOST:
        return _receive(array, kind, number, where, name)
    relay = Relay(_resolved(array))
    data: NDArray = np.from_dlpack(relay)
    return data.view(bfloat16) if relay.is_bfloat16 else data


def read(x: Any, where: str = "asarray", name: str = "x") -> Any:
    """Returns the elements of another library's array, without a copy where they are of one dtype.

    Args:
        x: an object with `__array__` or `__dlpack__`; NumPy's protocol is tried first, as most libraries answer it faster.
        where: the function that reads it, for messages.
        name: the array's name in messages.

    Returns:
        an array of NumPy; an array of nnc where the elements lie on a GPU.

    Raises:
        ArgumentTypeError: the library does not give the elements: the array lies on another device, or carries a gradient.
    """
    kind, number = place_of(x)
    problem = ""
    if kind not in ON_HOST:
        return _receive(x, kind, number, where, name)
    if hasattr(x, "__array__"):
        try:
            return np.asarray(x)
        except (RuntimeError, TypeError) as error:
            problem = str(error)
    if hasattr(x, "__dlpack__"):  # which says more than NumPy: bfloat16
        try:
            return load(x, where, name)
        except (BufferError, RuntimeError, TypeError) as error:
            problem = problem or str(error)
    raise _unread(x, where, name, problem)


def _resolved(x: Any) -> Any:
    """PyTorch's lazy conjugates and negatives as values: its `__dlpack__` refuses the former and forgets the sign of the latter."""
    for is_lazy, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if hasattr(x, is_lazy) and hasattr(x, resolve) and getattr(x, is_lazy)():
            x = getattr(x, resolve)()
    return x


def _unread(x: Any, where: str, name: str, problem: str) -> ArgumentTypeError:
    fix = "pass a dense array on the host that carries no gradient: x.detach().cpu() in PyTorch, jax.device_get(x) in JAX."
    return user_error(ArgumentTypeError, where, f"{name} ({_kind(x)}) cannot be read: {problem}", fix=fix)


def place_of(x: Any) -> tuple[int, int]:
    """Returns DLPack's kind and number of the device of another library's array; the host's where the library does not say.

    Args:
        x: an array with `__dlpack__` or `__array__`.
    """
    if getattr(x, "is_cpu", False) is True:  # a tensor of PyTorch, which answers ten times faster so
        return HOST, 0
    try:
        kind, number = x.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return HOST, 0  # without a device, or on several: its library says whether it can be read
    return int(kind), int(number)


def _receive(x: Any, kind: int, number: int, where: str, name: str) -> Any:
    """Returns another library's array on a device.

    Raises:
        ArgumentTypeError: nnc does not use that device (the user has to ask for a copy), or the array's library does not give
            the elements.
    """
    device = f"{DEVICES.get(kind, f'device kind {kind}')}:{number}"
    if kind == CUDA:
        try:
            return interpreter_of(find_device(device, "asarray")).receive(_resolved(x))
        except UnsupportedError:
            pass
        except NncError:
            raise
        except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise _unread(x, where, name, str(error)) from None
    problem = f"{name} ({_kind(x)}) lies on {device}, not on the host or a device of nnc.devices()."
    fix = "copy it first: x.cpu() in PyTorch, jax.device_get(x) in JAX, x.get() in CuPy."
    raise user_error(ArgumentTypeError, where, problem, fix=fix)


def _kind(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__name__}"
