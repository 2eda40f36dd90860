"""The open command registry: commands are names, everything known about them stands in attribute columns.

A column maps commands to values of one type. Any package may add a command, a column, or a backend's kernel to a command
that exists; a second value for a cell needs a higher priority than the first. (The column store is NNVM's op registry;
one attribute set per command is libnnc's rule.)
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np

from nnc.device import CPU, load_kernels, machine_of_device
from nnc.device.target import Target
from nnc.errors import BackendError, RegistryError, user_error
from nnc.graph.dispatch import Command
from nnc.graph.rules import AsView, BatchRule, Derivative, Infer, InPlace, Reference, Rules
from nnc.graph.spec import TensorSpec

__all__ = [
    "ATTRIBUTES",
    "COMMANDS",
    "Attribute",
    "Kernel",
    "add_kernel",
    "attribute",
    "command",
    "expect_kernels",
    "find_kernel",
    "infer",
    "kernel",
    "reference",
    "register",
]

T = TypeVar("T")


@dataclass(slots=True)
class _Registry:
    """Counts registrations: `version` grows with each, and earlier conclusions hold no more."""

    version: int = 0


REGISTRY = _Registry()


class Attribute(dict[Command, T]):
    """A column: one value of type T for each command that has one. It is read as any mapping is, and filled by `set`.

    Args:
        name: unique.
        doc: meaning of a cell.

    Attributes:
        check: raises RegistryError for a wrong value, before its cell is filled. `register` fills the other cells of a command
            before.

    Example:
        >>> latency = Attribute("latency_cycles_doctest")
        >>> latency.set(command("exp"), 20)
        >>> latency[command("exp")], latency.get(command("log"), 4)
        (20, 4)
    """

    def __init__(self, name: str, doc: str = "") -> None:
        super().__init__()
        if name in ATTRIBUTES:
            fix = f"use nnc.graph.attribute({name!r}), or another name."
            raise user_error(RegistryError, "Attribute", f"attribute {name!r} exists already.", fix=fix)
        self.name, self.doc = name, doc
        self._priorities: dict[Command, int] = {}
        self._followers: list[Callable[[Command], None]] = []
        self.check: Callable[[Command, T], None] | None = None
        ATTRIBUTES[name] = self

    def set(self, target: Command | str, value: T, *, priority: int = 10) -> None:
        """Fills the cell of a command.

        Args:
            target: the command or its name.
            value: the value of the cell.
            priority: values of a higher priority replace values of a lower one.

        Raises:
            RegistryError: the command is unknown, the cell holds a value of the same or a higher priority, or the value is wrong.
        """
        at = command(target)
        known = self._priorities.get(at)
        if known is not None and known >= priority:
            problem = f"attribute {self.name!r} is set already, with priority {known}."
            raise user_error(RegistryError, at.name, problem, fix=f"pass priority={known + 1} or higher to replace it.")
        if self.check is not None:
            self.check(at, value)
        self._fill(at, value, priority)

    def follow(self, follower: Callable[[Command], None]) -> None:
        """Calls a function with each command that has a cell, and with others when they get one.

        Args:
            follower: called once for each command.
        """
        self._followers.append(follower)
        for target in self:
            follower(target)

    def _fill(self, target: Command, value: T, priority: int) -> None:
        is_new = target not in self
        super().__setitem__(target, value)
        self._priorities[target] = priority
        REGISTRY.version += 1
        if is_new:
            for follower in self._followers:
                follower(target)

    def _forget(self, target: Command) -> None:
        self.pop(target, None)
        self._priorities.pop(target, None)

    def __setitem__(self, target: Command, value: T) -> None:
        raise user_error(
            RegistryError, self.name, "a column is not assigned to.", fix=f"use {self.name}.set({target!r}, ...)."
        )

    def __missing__(self, target: Command) -> T:
        fix = f"set it with {self.name}.set({target.name!r}, ...)."
        raise user_error(RegistryError, target.name, f"attribute {self.name!r} is not set.", fix=fix)

    def __repr__(self) -> str:
        return f"<Attribute {self.name}>"


COMMANDS: dict[str, Command] = {}
"""All commands by name.

Example:
    >>> COMMANDS["add"].arity
    2
"""
ATTRIBUTES: dict[str, Attribute[Any]] = {}
"""All columns by name: one kind of fact about commands each.

Example:
    >>> command("add") in ATTRIBUTES["reference"]
    True
"""


def register(name: str, rules: Rules, arity: int | None = 1, outputs: int | None = 1, **attributes: Any) -> Command:
    """Adds a command and fills its cells.

    Args:
        name: unique.
        rules: the facts of the command that nnc asks for.
        arity: number of inputs; None: any number.
        outputs: number of outputs; None: it depends.
        **attributes: cells of other columns, by the name of the column.

    Raises:
        RegistryError: the command exists already, there is no such column, or a value is wrong.

    Example:
        >>> double = register("double_doctest", Rules(infer=lambda x: x, reference=lambda x: x + x))
        >>> double(nnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    if name in COMMANDS:
        fix = "choose another name, or add attributes to the one there."
        raise user_error(RegistryError, "register", f"command {name!r} exists already.", fix=fix)
    given = {
        each.name: getattr(rules, each.name) for each in fields(rules) if getattr(rules, each.name) != each.default
    }
    cells = [(attribute(key), value) for key, value in (given | attributes).items() if value is not None]
    new = COMMANDS[name] = Command(name, arity, outputs)
    try:
        for column, value in sorted(cells, key=lambda cell: cell[0].check is not None):
            column.set(new, value)
    except RegistryError:  # of a wrong command nothing stays
        del COMMANDS[name]
        for column in ATTRIBUTES.values():
            column._forget(new)
        raise
    return new


def command(name: Command | str) -> Command:
    """Returns the command of that name.

    Args:
        name: the command's name, or the command itself.

    Raises:
        RegistryError: there is none.

    Example:
        >>> command("add").name
        'add'
    """
    if isinstance(name, Command):
        return name
    try:
        return COMMANDS[name]
    except KeyError:
        raise user_error(
            RegistryError, "command", f"no command {name!r} is registered.", fix="import the package that registers it."
        ) from None


copyreg.pickle(Command, lambda each: (command, (each.name,)))  # a copy is the command itself


def attribute(name: str) -> Attribute[Any]:
    """Returns the column of that name.

    Args:
        name: the name of the column.

    Raises:
        RegistryError: there is none.

    Example:
        >>> attribute("kernel").name
        'kernel'
    """
    try:
        return ATTRIBUTES[name]
    except KeyError:
        problem = f"no attribute {name!r}; there are {', '.join(ATTRIBUTES)}."
        raise user_error(RegistryError, "attribute", problem, fix=f"create Attribute({name!r}).") from None


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
        lanes: (specs, params) -> how many channels of the result its vectors hold, so that fewer leave lanes idle; 0 where
            vectors hold something else.
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
    kernels = kernel.so_far(name)
    for old in kernels:
        if _has_place_of(old, new) and old.priority >= new.priority:
            problem = f"backend {new.backend!r} has a kernel of priority {old.priority} already."
            raise user_error(RegistryError, name.name, problem, fix="give the new one a higher priority.")
    kept = [old for old in kernels if not _has_place_of(old, new)]
    kernel.replace_cell(name, tuple(sorted([*kept, new], key=lambda k: -k.priority)))


def _has_place_of(old: Kernel | KernelFactory, new: Kernel | KernelFactory) -> bool:
    """Whether two kernels of a command are one backend's for one kind of devices."""
    return (old.backend, old.device) == (new.backend, new.device)


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
        found: tuple[Kernel | KernelFactory, ...] | None = self.get(target)
        return super().__getitem__(target) if found is None else found

    def replace_cell(self, target: Command, kernels: tuple[Kernel | KernelFactory, ...]) -> None:
        """Fills a cell anew. Nobody has concluded anything from kernels that are still promised."""
        version = REGISTRY.version
        self._fill(target, kernels, 0)
        if target in self._promised:
            REGISTRY.version = version


infer: Attribute[Infer] = Attribute("infer")
"""The column of shape rules: the specs of a command's results.

Example:
    >>> infer[command("neg")](TensorSpec((2,), "float32"))
    TensorSpec(shape=(2,), dtype=dtype('float32'), layout='strided')
"""
reference: Attribute[Reference] = Attribute("reference")
"""The column of references: the meaning of a command, as a function of NumPy arrays.

Example:
    >>> reference[command("neg")](np.ones(2))
    array([-1., -1.])
"""
derivative: Attribute[Derivative] = Attribute("derivative")
batch: Attribute[BatchRule] = Attribute("batch")
alias: Attribute[AsView] = Attribute("alias")
joined: Attribute[Callable[..., Sequence[tuple[int, ...]]]] = Attribute("joined")
inplace: Attribute[InPlace | Callable[[Mapping[str, Any]], InPlace]] = Attribute("inplace")
scalar: Attribute[str] = Attribute("scalar")
exact: Attribute[bool] = Attribute("exact")
commutes: Attribute[bool] = Attribute("commutes")
cost: Attribute[Callable[..., int]] = Attribute("cost")
weight: Attribute[int] = Attribute("weight")
effect: Attribute[str] = Attribute("effect")
refuses: Attribute[bool | Callable[..., bool]] = Attribute("refuses")
numpy_call: Attribute[np.ufunc | Callable[..., Callable[..., Any] | None]] = Attribute("numpy_call")
any_arrays: Attribute[bool] = Attribute("any_arrays")
rewritten: Attribute[Callable[..., Mapping[str, Any]]] = Attribute(
    "rewritten", "(params, old sub-graphs, new ones) -> params of a node after a pass rewrote its sub-graphs"
)
kernel = _KernelColumn("kernel", "the kernels of all devices that run the command, best first")
"""The column of kernels: all that run a command, the best first.

Example:
    >>> {each.device for each in kernel.get(command("cumsum"), ())} >= {"cpu"}
    True
"""


def kernels_for(target: Command, machine: Target) -> tuple[Kernel, ...]:
    """Returns the kernels that a machine has for a command, the best first."""
    load_kernels(machine.kind)
    return _kernels_for(target, machine, REGISTRY.version)


@lru_cache(maxsize=1 << 12)
def _kernels_for(target: Command, machine: Target, _version: int) -> tuple[Kernel, ...]:
    found = [each for each in kernel.get(target, ()) if each.device == machine.kind]
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
