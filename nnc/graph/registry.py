"""The open command registry: commands are names, everything known about them stands in attribute columns.

A column maps commands to values of one type. Any package may add a command, a column, or a backend's kernel to a command
that exists; a second value for a cell needs a higher priority than the first. (The column store is NNVM's op registry;
one attribute set per command is libnnc's rule.)
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from nnc.errors import RegistryError, user_error
from nnc.graph.dispatch import Command
from nnc.graph.rules import AsView, BatchRule, Derivative, Infer, InPlace, Reference, Rules

__all__ = [
    "ATTRIBUTES",
    "COMMANDS",
    "Attribute",
    "attribute",
    "command",
    "infer",
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
        self._check: Callable[[Command, T], None] | None = None
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
        if self._check is not None:
            self._check(at, value)
        self._fill(at, value, priority)

    def check_with(self, check: Callable[[Command, T], None]) -> None:
        """Has each value that is set from now on looked at before its cell is filled.

        Args:
            check: raises RegistryError for a wrong value. `register` fills the other cells of a command before.
        """
        self._check = check

    @property
    def is_checked(self) -> bool:
        """Whether values are looked at."""
        return self._check is not None

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
"""All columns by name.

Example:
    >>> command("add") in ATTRIBUTES["reference"]
    True
"""


def register(name: str, rules: Rules, arity: int | None = 1, outputs: int | None = 1, **attributes: Any) -> Command:
    """Adds a command and fills its cells.

    Args:
        name: unique.
        rules: the command's properties that nnc asks for.
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
        for column, value in sorted(cells, key=lambda cell: cell[0].is_checked):
            column.set(new, value)
    except RegistryError:  # of a wrong command nothing stays
        del COMMANDS[name]
        for column in ATTRIBUTES.values():
            column.pop(new, None)
            column._priorities.pop(new, None)
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


infer: Attribute[Infer] = Attribute("infer")
"""The column of shape rules: the specs of a command's results.

Example:
    >>> infer[command("neg")](nnc.graph.TensorSpec((2,), "float32"))
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
