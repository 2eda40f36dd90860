"""Kinds of devices. One record of a kind says all that nnc must know of it; `register_kind` adds it.

The CPU and CUDA's devices are registered by `nnc/compiled/targets.py`, the simulated ones by `nnc.testing.devices`. Another package
adds a kind of device in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from nnc.base.options import CPU, Options
from nnc.device.target import Target
from nnc.errors import RegistryError, user_error


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
