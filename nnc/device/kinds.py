"""Kinds of devices. One record of a kind says all that nnc must know of it; `register_kind` adds it.

`nnc/compiled/device_kinds.py` registers the CPU and CUDA's devices, `nnc.testing.devices` the simulated ones. Another package
adds a kind of device in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from nnc.base.context import get_context
from nnc.base.fork import new_lock
from nnc.base.options import CPU, Options
from nnc.base.target import Target
from nnc.device.protocol import Device
from nnc.errors import DeviceError, RegistryError, UnsupportedError, user_error


def _one() -> int:
    return 1


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device. Functions without arguments import their results, and are called when a device of the kind is used.

    Attributes:
        name: begins the name of each device, "cuda" of "cuda:0". The CPU's name has no number.
        backend: the kind whose kernels it runs: its own name, where it has kernels.
        make: returns the device of a name (`nnc.device.protocol.Device`).
        interpreter: returns the class that runs single commands on such a device; None for the CPU.
        queue: returns the function that makes a program of a graph, for an interpreter of such a device; None for the CPU.
        program: returns the class that keeps a program's kernels on such a device (`nnc.run.device_frame`); None for the CPU.
        kernels: registers kernels, and returns their module, with `choose_kernel`, `candidate_kernels` and `expected_compiler`;
            None where those of another kind are used.
        machine: the figures by which programs for it are made; None: the CPU's.
        count: how many devices of it there are.
        advice: the fix in the error where there is none.

    Example:
        >>> from nnc.device.cpu import Cpu
        >>> DeviceKind(name="toy", backend="cpu", make=lambda name: Cpu()).count()
        1
    """

    name: str
    backend: str
    make: Callable[[str], Any]
    interpreter: Callable[[], Callable[[Any], Any]] | None = None
    queue: Callable[[], Callable[[Any, Any], Any]] | None = None
    program: Callable[[], Any] | None = None
    kernels: Callable[[], Any] | None = None
    machine: Callable[[], Target] | None = None
    count: Callable[[], int] = _one
    advice: Callable[[], str] = str


KINDS: dict[str, DeviceKind] = {}


def register_kind(kind: DeviceKind) -> None:
    """Adds a kind of device, whose devices every function then takes by name.

    Args:
        kind: its record.

    Raises:
        RegistryError: there is another kind of that name.

    Example:
        >>> register_kind(KINDS["cpu"])  # the same record again changes nothing
    """
    if KINDS.setdefault(kind.name, kind) != kind:
        fix = "give the new one another name."
        raise user_error(RegistryError, "register_kind", f"there is a kind of device {kind.name!r} already.", fix=fix)


def kind_of(device: str) -> str:
    """Returns the kind of a device by which kernels and compilers are chosen: its name without the number, or the kind whose
    kernels it runs.

    Args:
        device: its name.

    Example:
        >>> kind_of("cuda:0"), kind_of("cpu")
        ('cuda', 'cpu')
    """
    name = device.partition(":")[0]
    found = KINDS.get(name)
    return name if found is None else found.backend


def machine_of(options: Options) -> Target:
    """Returns the machine that a program is made for: the one in its options, else that of its device.

    Args:
        options: the options of the program.

    Example:
        >>> machine_of(Options(device="cuda:0")).kind
        'cuda'
    """
    return options.machine or machine_of_device(options.device)


def machine_of_device(device: str = CPU) -> Target:
    """Returns the figures of a device of this machine.

    Args:
        device: its name, or that of its kind.

    Example:
        >>> machine_of_device().kind
        'cpu'
    """
    found = KINDS.get(device.partition(":")[0])
    if found is not None and found.machine is not None:
        return found.machine()
    of_cpu = KINDS[CPU].machine
    assert of_cpu is not None, "the CPU has figures"
    return replace(of_cpu(), kind=kind_of(device))


@cache
def load_kernels(kind: str = CPU) -> Any:
    """Registers the kernels of a kind of device, which takes a while the first time, and returns their module.

    Args:
        kind: as `kind_of` returns it. One that nobody registered has no kernels: None is returned.

    Example:
        >>> load_kernels().choose_kernel.__name__
        'choose_kernel'
    """
    found = KINDS.get(kind)
    return None if found is None or found.kernels is None else found.kernels()


# -- devices by name ---------------------------------------------------------------------------------------------------

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
