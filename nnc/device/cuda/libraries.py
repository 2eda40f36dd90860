"""Finds CUDA's driver and CuPy, which reach a graphics processor: CuPy for memory, streams and modules, the driver's functions by
their addresses for compiled code.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nnc.device.driver import GRAPH_SIGNATURES, RUN_STEP, SIGNATURES, c_function
from nnc.errors import DeviceError, UnsupportedError, user_error

_DRIVER = "libcuda.so.1"
_INSTALL = "install CuPy for your driver: pip install 'nnc[gpu13]' (CUDA 13) or 'nnc[gpu]' (CUDA 12)."


@dataclass(frozen=True, slots=True)
class Libraries:
    """Libraries for a graphics processor.

    Attributes:
        cupy: the module.
        cupyx: the module.
        functions: the driver's functions that compiled code calls, by name.
        graph_functions: the driver's functions for captured graphs, by name.
        text_of: the driver's name and description of an error, given its number.

    Example:
        >>> Libraries(cupy=None, cupyx=None, functions={}, graph_functions={}, text_of=str).text_of(700)
        '700'
    """

    cupy: Any
    cupyx: Any
    functions: Mapping[str, Any]
    graph_functions: Mapping[str, Any]
    text_of: Any


def failure(who: str, text: str) -> DeviceError:
    """Makes the error for work that CUDA refused or that failed.

    Args:
        who: the subject of the message.
        text: CUDA's own message.
    """
    fix = "look at nvidia-smi for other programs on the device; after an illegal access only a new process can use it again."
    return user_error(DeviceError, who, f"CUDA reports {text}.", fix=fix)


def find_libraries(name: str) -> Libraries:
    """Finds the libraries that reach the device of this name.

    Raises:
        UnsupportedError: CuPy is not installed.
    """
    try:
        cupy, cupyx = importlib.import_module("cupy"), importlib.import_module("cupyx")
    except ImportError as error:
        raise user_error(
            UnsupportedError,
            name,
            f"it is used through CuPy, which cannot be imported: {error}.",
            fix=_INSTALL,
        ) from error
    driver = ctypes.CDLL(_DRIVER)
    functions = {each: c_function(each)((each, driver)) for each in SIGNATURES if each != RUN_STEP}
    graph_functions = {each: c_function(each)((each, driver)) for each in GRAPH_SIGNATURES}

    def text_of(code: int) -> str:
        found = []
        for function in (driver.cuGetErrorName, driver.cuGetErrorString):
            text = ctypes.c_char_p()
            function(code, ctypes.byref(text))
            found.append((text.value or b"an unknown error").decode())
        return f"{found[0]} ({found[1]})"

    return Libraries(cupy, cupyx, functions, graph_functions, text_of)


@cache
def number_of_gpus() -> int:
    """Counts the graphics processors that nnc can use: 0 without NVIDIA's driver or without CuPy.

    Example:
        >>> number_of_gpus() >= 0
        True
    """
    if importlib.util.find_spec("cupy") is None:
        return 0
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
