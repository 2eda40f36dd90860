"""Facts of nodes that follow from the columns of their commands, so that passes need no names of commands."""

from __future__ import annotations

from nnc.commands.rules import alias, cannot_fail, joined, may_raise, placed, reduction, scalar, terms, together
from nnc.graph import Box, Command, Node


def is_view(node: Node) -> bool:
    """Whether a node shows the elements of its only operand in another form."""
    return alias.get(node.command) == "view" and len(node.inputs) == 1


def never_raises(node: Node) -> bool:
    """Whether a node is known to raise for no values of its operands, so that it may run where it did not have to."""
    command = node.command
    is_plain = command in scalar or command in alias or command in reduction or placed.get(command) == "counted"
    return (is_plain or cannot_fail.get(command, False)) and not may_raise(node)


def boxes_of(join: Node) -> list[Box]:
    """The elements of its result that each operand of a join is."""
    specs = [symbol.spec for symbol in join.inputs]
    starts = joined[join.command](*specs, **join.params)
    return [Box(tuple(start), spec.shape) for start, spec in zip(starts, specs, strict=True)]


def has_companion(command: Command) -> bool:
    """Whether there is another command that may be computed together with this one."""
    return command in together or any(command is other for other, _ in together.values())


def is_sum(command: Command) -> bool:
    """Whether a command adds up the elements along its parameter `axes`."""
    by = reduction.get(command)
    return by is not None and is_addition(by.combine)


def is_addition(command: Command) -> bool:
    """Whether a command adds two operands, element by element."""
    return terms.get(command) == (1, 1)
