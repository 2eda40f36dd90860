"""The devices of this machine, by name, and the interpreters that run commands on them."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any

from nnc.base.context import get_context
from nnc.base.fork import new_lock
from nnc.base.options import CPU
from nnc.device.cpu import Cpu
from nnc.device.protocol import CUDA, INTERPRETED, SIMULATED, Device
from nnc.errors import DeviceError, UnsupportedError, user_error

_CLASSES = {
    SIMULATED: ("nnc.device.sim", "SimDevice"),
    INTERPRETED: ("nnc.device.interpreted", "PtxDevice"),
    CUDA: ("nnc.device.cuda", "CudaDevice"),
}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,2}")  # there is any number of them: each is made when it is first asked for
_DEVICES: dict[str, Device] = {CPU: Cpu()}
_INTERPRETERS: dict[str, Any] = {}
_MAKERS: list[Callable[[Any], Any]] = []  # one: makes the interpreter of a device
_LOCK = new_lock()


def devices() -> list[str]:
    """The devices of this machine: the CPU, one that is simulated, one that interprets kernels printed for CUDA, and NVIDIA's
    graphics processors, where CuPy is installed. Programs may use more of the simulated ones, "sim:1" and so on.

    Example:
        >>> nnc.devices()
        ['cpu', 'sim:0', 'ptx:0'...]
    """
    return [CPU, f"{SIMULATED}:0", f"{INTERPRETED}:0", *(f"{CUDA}:{i}" for i in range(_number_of_gpus()))]


def _number_of_gpus() -> int:
    count: int = importlib.import_module("nnc.device.cuda.libraries").number_of_gpus()
    return count


def find_device(name: Any, where: str) -> Device:
    """The device of that name.

    Args:
        name: as `devices` lists it, or an object that is printed so.
        where: the function the user called, for the error.

    Raises:
        UnsupportedError: there is no such device, or its libraries are not installed.

    Example:
        >>> find_device("cpu", "f").name
        'cpu'
    """
    found = _DEVICES.get(str(name))
    if found is not None:
        return found
    kind, _, number = str(name).partition(":")
    lacks_gpu = kind == CUDA and _number_of_gpus() == 0
    if kind not in _CLASSES or not _NUMBER.fullmatch(number) or lacks_gpu:
        more = ""
        if lacks_gpu and importlib.util.find_spec("cupy") is None:
            more = "; CUDA's devices need CuPy: pip install 'nnc[gpu13]' (CUDA 13) or 'nnc[gpu]' (CUDA 12)"
        elif lacks_gpu:
            more = "; NVIDIA's driver (libcuda.so.1), which CUDA's devices need, finds no graphics processor"
        raise user_error(
            UnsupportedError, where, f"there is no device {name!r}.", fix="use one of nnc.devices(): "
            f"{', '.join(map(repr, devices()))}{more}.",
        )  # fmt: skip
    with _LOCK:
        module, made = _CLASSES[kind]
        return _DEVICES.setdefault(str(name), getattr(importlib.import_module(module), made)(str(name)))


def check_program(device: str, where: str) -> None:
    """Refuses a `device` argument within a compiled function that runs on another device.

    Args:
        device: its name.
        where: the function the user called, for the error.

    Raises:
        DeviceError: the function runs elsewhere.

    Example:
        >>> check_program("cpu", "f")
    """
    program = get_context().program
    if program is not None and program.device != device:
        raise user_error(
            DeviceError, where,
            f"device={device!r} within a compiled function that runs on {program.device}: all its values are there.",
            fix=f"leave device= out, or compile the function with device={device!r}.",
        )  # fmt: skip


def set_interpreter(maker: Callable[[Any], Any]) -> None:
    """Says how the interpreter of a device is made: it runs commands there.

    Args:
        maker: from a device to its interpreter.

    Example:
        >>> set_interpreter(_MAKERS[0])  # the one that there is
    """
    _MAKERS[:] = [maker]


def interpreter_of(device: Device) -> Any:
    """The interpreter that runs commands on a device; None for the CPU.

    Args:
        device: of this machine.

    Example:
        >>> interpreter_of(find_device("cpu", "f")) is None
        True
    """
    if device.name == CPU:
        return None
    found = _INTERPRETERS.get(device.name)
    if found is None:
        with _LOCK:
            if device.name not in _INTERPRETERS:
                _INTERPRETERS[device.name] = _MAKERS[0](device)
            found = _INTERPRETERS[device.name]
    return found
