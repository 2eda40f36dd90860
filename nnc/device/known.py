"""The devices of this machine, by name, and the interpreters that run commands on them."""

from __future__ import annotations

import re
from typing import Any

from nnc.base.context import get_context
from nnc.base.fork import new_lock
from nnc.base.options import CPU
from nnc.device.kinds import KINDS
from nnc.device.protocol import Device
from nnc.errors import DeviceError, UnsupportedError, user_error

_NUMBER = re.compile(r"0|[1-9][0-9]{0,2}")  # of some kinds there is any number: each is made when it is first asked for
_DEVICES: dict[str, Device] = {}
_INTERPRETERS: dict[str, Any] = {}
_LOCK = new_lock()


def devices() -> list[str]:
    """Returns the devices of this machine: the CPU, and NVIDIA's graphics processors, where CuPy is installed.

    `import nnc.testing.devices` adds a simulated device, "sim:0", and one that interprets kernels printed for CUDA, "ptx:0";
    programs may use more of these, "sim:1" and so on.

    Example:
        >>> nnc.devices()
        ['cpu'...]
    """
    return [
        kind.name if kind.name == CPU else f"{kind.name}:{i}" for kind in KINDS.values() for i in range(kind.count())
    ]


def find_device(name: Any, where: str) -> Device:
    """Returns the device of that name.

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
    first, _, number = str(name).partition(":")
    kind = KINDS.get(first)
    if kind is None or not (number == "" if first == CPU else _NUMBER.fullmatch(number)) or kind.count() == 0:
        advice = kind.advice() if kind is not None and kind.count() == 0 else ""
        if kind is None and first in ("sim", "ptx"):  # these names are well known, but their records come later
            advice = "; simulated devices are there after `import nnc.testing.devices`"
        fix = f"use one of nnc.devices(): {', '.join(map(repr, devices()))}{advice}."
        raise user_error(UnsupportedError, where, f"there is no device {name!r}.", fix=fix)
    with _LOCK:
        return _DEVICES.setdefault(str(name), kind.make(str(name)))


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
        problem = (
            f"device={device!r} within a compiled function that runs on {program.device}: all its values are there."
        )
        fix = f"leave device= out, or compile the function with device={device!r}."
        raise user_error(DeviceError, where, problem, fix=fix)


def interpreter_of(device: Device) -> Any:
    """Returns the interpreter that runs commands on a device; None for the CPU.

    Args:
        device: a device of this machine.

    Example:
        >>> interpreter_of(find_device("cpu", "f")) is None
        True
    """
    found = _INTERPRETERS.get(device.name)
    if found is None and device.name != CPU:
        make = KINDS[device.name.partition(":")[0]].interpreter
        assert make is not None, f"{device.name}: its kind runs no commands"
        with _LOCK:
            if device.name not in _INTERPRETERS:
                _INTERPRETERS[device.name] = make()(device)
            found = _INTERPRETERS[device.name]
    return found
