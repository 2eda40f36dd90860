"""The devices of this machine, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nnc.devices.cpu import Cpu
from nnc.devices.protocol import Device
from nnc.errors import UnsupportedError, user_error

_DEVICES: Mapping[str, Device] = MappingProxyType({device.name: device for device in (Cpu(),)})


def devices() -> list[str]:
    """The devices of this machine.

    Example:
        >>> nnc.devices()
        ['cpu']
    """
    return [*_DEVICES]


def find_device(name: Any, where: str) -> Device:
    """The device of that name.

    Args:
        name: as `devices` lists it, or an object that is printed so.
        where: the function the user called, for the error.

    Raises:
        UnsupportedError: there is no such device.
    """
    found = _DEVICES.get(str(name))
    if found is None:
        raise user_error(
            UnsupportedError, where, f"there is no device {name!r}.", fix="use one of nnc.devices(): "
            f"{', '.join(map(repr, _DEVICES))}.",
        )  # fmt: skip
    return found


def check_device(name: Any, where: str) -> None:
    """Refuses a `device` argument that names no device.

    Args:
        name: as for `find_device`; None stands for the default.
        where: the function the user called, for the error.

    Raises:
        UnsupportedError: there is no such device.
    """
    if name is not None:
        find_device(name, where)
