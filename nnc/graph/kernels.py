"""The kernels of commands: which backend runs a command, on which device. They are a column of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from nnc.base.target import Target
from nnc.device import CPU, load_kernels, machine_of_device
from nnc.errors import BackendError, RegistryError, user_error
from nnc.graph.dispatch import Command
from nnc.graph.registry import REGISTRY, Attribute, command, reference
from nnc.graph.spec import TensorSpec

__all__ = ["Kernel", "add_kernel", "expect_kernels", "find_kernel", "kernel"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One backend's way to run a command.

    Among the kernels that accept, the highest priority wins; the reference has 0. Of a command with sub-graphs, `supports` and
    `workspace` find them among the params, as `graphs`.

    Attributes:
        backend: its name.
        device: kind of the devices that it runs on (nnc.devices).
        run: (inputs, outputs, params) -> None; reads NumPy arrays and writes every element of `outputs`.
        supports: (specs, params) -> whether it takes these inputs.
        priority: the highest wins.
        workspace: (specs, params) -> bytes of memory that it needs while it runs. Where these are not 0, the memory plan has a
            place for them, and `run` gets them as one more output, an array of uint8.
        native: step -> the kernel for compiled programs (nnc.lower.kernels.native), where there is one for the step's strides;
            kernels without one are called through Python.
        layouts: (specs, params, once) -> the blocked layouts into which it would bring inputs that may come packed
            (nnc.commands.pack), by their positions; `once` says that this costs nothing, since it is done once for many runs.
        lanes: (specs, params) -> how many channels of the result take the time of one vector of them at most, since so many lie
            in one; 0 where the time is no matter of channels.
        in_place: whether an output may lie where an operand of its epilogue does.
        expect: announces that the kernel may be asked for, so that its libraries can be loaded meanwhile.
        queue: (step, device, precision) -> the function that queues a step on a device with memory of its own, by a library for
            instance, given the addresses of inputs and outputs and the handle of a stream.

    Example:
        >>> def run(inputs, outputs, params):
        ...     np.add(*inputs, out=outputs[0])
        >>> Kernel("mine", run).priority
        10
    """

    backend: str
    run: Callable[..., None]
    supports: Callable[[tuple[TensorSpec, ...], Mapping[str, Any]], bool] = field(default=lambda specs, params: True)
    priority: int = 10
    workspace: Callable[[tuple[TensorSpec, ...], Mapping[str, Any]], int] = field(default=lambda specs, params: 0)
    native: Callable[[Any], Any] | None = None
    layouts: Callable[[tuple[TensorSpec, ...], Mapping[str, Any], bool], Mapping[int, str]] = field(
        default=lambda specs, params, once: {}
    )
    lanes: Callable[[tuple[TensorSpec, ...], Mapping[str, Any]], int] = field(default=lambda specs, params: 0)
    in_place: bool = True
    expect: Callable[[], None] = field(default=lambda: None)
    device: str = CPU
    queue: Callable[[Any, Any, str], Callable[[Sequence[int], int], None]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KernelFactory:
    """A kernel whose functions depend on the figures of the machine.

    Attributes:
        backend: its name.
        make: machine -> the kernel for it, which has this backend, device and priority.
        priority: the highest wins.
        device: kind of the devices that it runs on.
    """

    backend: str
    make: Callable[[Any], Kernel]
    priority: int = 10
    device: str = CPU


class _KernelColumn(Attribute[tuple[Kernel | KernelFactory, ...]]):
    """The kernel column: a cell holds one kernel for each backend, so it grows instead of being overruled. Modules with kernels are
    imported when somebody asks for the kernels of a command that they serve.
    """

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(name, doc)
        self._promised: dict[Command, list[Callable[[], object]]] = {}

    def promise(self, target: Command | str, load: Callable[[], object]) -> None:
        """Has `load`, which adds kernels of a command, called before they are first asked for."""
        self._promised.setdefault(command(target), []).append(load)

    def get(self, target: Command, default: Any = None) -> Any:
        """Returns the kernels of a command, best first; the default where it has none."""
        promised = self._promised.get(target)
        if promised is not None:
            for load in promised:
                load()
            self._promised.pop(target, None)  # only now, so that other threads wait for the imports
        return super().get(target, default)

    def so_far(self, target: Command) -> tuple[Kernel | KernelFactory, ...]:
        """Returns the kernels of a command that are there already."""
        return super().get(target, ())

    def __getitem__(self, target: Command) -> tuple[Kernel | KernelFactory, ...]:
        self.get(target)
        return super().__getitem__(target)

    def replace_cell(self, target: Command, kernels: tuple[Kernel | KernelFactory, ...]) -> None:
        """Fills a cell anew. Nobody has concluded anything from kernels that are still promised."""
        version = REGISTRY.version
        self._fill(target, kernels, 0)
        if target in self._promised:
            REGISTRY.version = version


kernel = _KernelColumn("kernel", "the kernels of all devices that run the command, best first")
"""The column of kernels: all that run a command, the best first.

Example:
    >>> {each.device for each in kernel.get(command("cumsum"), ())} >= {"cpu"}
    True
"""


def add_kernel(target: Command | str, new: Kernel | KernelFactory) -> None:
    """Adds a backend to a command.

    Args:
        target: the command or its name.
        new: its kernel, or the factory of it for machines.

    Raises:
        RegistryError: the backend has a kernel of the same or a higher priority for this command already.

    Example:
        >>> add_kernel("add", Kernel("mine", lambda inputs, outputs, params: np.add(*inputs, out=outputs[0]), priority=99))
        >>> kernel.get(command("add"))[0].backend
        'mine'
    """
    name = command(target)
    kernels = {(each.backend, each.device): each for each in kernel.so_far(name)}
    old = kernels.pop((new.backend, new.device), None)
    if old is not None and old.priority >= new.priority:
        problem = f"backend {new.backend!r} has a kernel of priority {old.priority} already."
        raise user_error(RegistryError, name.name, problem, fix="give the new one a higher priority.")
    kernel.replace_cell(name, tuple(sorted([*kernels.values(), new], key=lambda k: -k.priority)))


def kernels_for(target: Command, machine: Target) -> tuple[Kernel, ...]:
    """Returns the kernels that a machine has for a command, the best first."""
    load_kernels(machine.kind)
    return _kernels_for(target, machine, REGISTRY.version)


@lru_cache(maxsize=1 << 12)
def _kernels_for(target: Command, machine: Target, _version: int) -> tuple[Kernel, ...]:
    found = [each for each in kernel.get(target, ()) if each.device == machine.kind]
    if machine.backends:
        found = [each for name in machine.backends for each in found if each.backend == name]
    return tuple([_made(each, machine) if isinstance(each, KernelFactory) else each for each in found])


@cache
def _made(factory: KernelFactory, machine: Target) -> Kernel:
    return factory.make(machine)


def find_kernel(
    target: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target | None = None
) -> Kernel | None:
    """Returns the kernel of highest priority that takes these inputs; None where only the reference does.

    Args:
        target: the command.
        specs: the specs of the inputs.
        params: static parameters by name.
        machine: the figures of the machine that it is to run on; None: this one's CPU.

    Raises:
        BackendError: the command has neither kernel nor reference.

    Example:
        >>> spec = TensorSpec((2,), "float32")
        >>> find_kernel(command("cumsum"), (spec,), {"axis": 0, "reverse": False}).backend
        'cpu'
    """
    for candidate in kernels_for(target, machine or machine_of_device()):
        if candidate.supports(specs, params):
            return candidate
    if target not in reference:
        problem = "no backend runs it for these inputs, and it has no reference."
        operands = {f"input {i}": spec for i, spec in enumerate(specs)}
        fix = "register a reference, or a kernel whose `supports` accepts them."
        raise user_error(BackendError, target.name, problem, operands=operands, fix=fix)
    return None


def expect_kernels(targets: Iterable[Command], machine: Target | None = None) -> None:
    """Says that kernels of these commands will be looked for.

    Args:
        targets: commands.
        machine: the figures of the machine that they are to run on; None: this one's CPU.

    Example:
        >>> expect_kernels([command("sin")])
    """
    machine = machine or machine_of_device()
    for target in targets:
        for candidate in kernels_for(target, machine):
            candidate.expect()
