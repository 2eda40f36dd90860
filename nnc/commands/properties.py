"""Properties of nodes that follow from the columns of their commands, so that passes need no names of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from nnc.commands.rules import (
    Counted,
    Element,
    Gathered,
    Product,
    Sum,
    elements,
    in_place_of,
    may_raise,
    reduction,
    together,
)
from nnc.graph import Box, Command, Node, Symbol, TensorSpec, covers
from nnc.graph.registry import alias, cost, joined, refuses, scalar

E = TypeVar("E", bound=Element)


def element_as(command: Command, kind: type[E]) -> E | None:
    """Returns the account of each element of a command's result, where it is of this kind."""
    found = elements.get(command)
    return found if isinstance(found, kind) else None


def flops_of(command: Command, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> int:
    """Floating-point operations of a command on operands of these specs; 0 where no rule counts them."""
    rule = cost.get(command)
    return rule(*specs, **params) if rule is not None else 0


def is_placed(command: Command) -> bool:
    """Whether elements of a command's result depend on where they stand."""
    return isinstance(elements.get(command), Counted | Gathered)


def takes_epilogue(command: Command) -> bool:
    """Whether kernels of a product of two operands may go on with each element as soon as it is known (`with_epilogue`)."""
    return command.name in ("dot", "conv")


def moves_elements(command: Command) -> bool:
    """Whether each element of a command's result is one of an operand, or 0, and none is computed: views and joins."""
    return command in alias or command in joined


def axes_of(command: Command) -> Callable[..., Sequence[tuple[int, int]] | None] | None:
    """Returns the rule for the axes of a view, pairs (axis of the operand, axis of the view); None for views without such a
    relation, and for other commands.
    """
    view = alias.get(command)
    return view.axes if view is not None else None


def is_view(node: Node) -> bool:
    """Whether a node shows the elements of its only operand in another form."""
    return node.command in alias and len(node.inputs) == 1


def chooses(node: Node) -> bool:
    """Whether each element of the result is that of operand 1 where operand 0 holds, and else that of operand 2."""
    return scalar.get(node.command) == "select(x, y, z)"


def never_raises(node: Node) -> bool:
    """Whether a node is known to raise for no values of its operands, so that it may run where it did not have to."""
    command = node.command
    is_plain = command in scalar or moves_elements(command) or command in reduction or element_as(command, Counted)
    return bool(is_plain or refuses.get(command) is False) and not may_raise(node)


def yields_elements(node: Node) -> bool:
    """Whether each element of a result is an element of an operand, as in views and maxima."""
    command, by = node.command, reduction.get(node.command)
    if command in joined:
        return covers(boxes_of(node), node.outputs[0].shape)
    if by is not None:
        return by.idempotent and node.inputs[0].spec.size > 0
    return is_view(node) or 0 in in_place_of(command, node.params).identity


def boxes_of(join: Node) -> list[Box]:
    """Returns the elements of its result that each operand of a join is."""
    specs = [symbol.spec for symbol in join.inputs]
    starts = joined[join.command](*specs, **join.params)
    return [Box(tuple(start), spec.shape) for start, spec in zip(starts, specs, strict=True)]


def has_companion(command: Command) -> bool:
    """Whether there is another command that may be computed together with this one."""
    return command in together or any(command is other for other, _ in together.values())


def view_axes(view: Node) -> Sequence[tuple[int, int]] | None:
    """Returns the pairs (axis of the operand, axis of the view) that belong together; None where axes are merged or cut."""
    rule = axes_of(view.command)
    return rule(view.inputs[0].spec, view.outputs[0].spec, **view.params) if rule is not None else None


def multiplies(node: Node) -> bool:
    """Whether a node multiplies two operands, which may be one symbol."""
    return element_as(node.command, Product) is not None and len(node.inputs) == 2


def squared(node: Node) -> Symbol | None:
    """Returns the symbol that a node multiplies by itself; None where it does not."""
    by = element_as(node.command, Product)
    factors = [node.inputs[i] for i in by.factors] if by is not None else []
    return factors[0] if factors and factors[0] is factors[1] else None


def is_sum(command: Command) -> bool:
    """Whether a command adds up the elements along its parameter `axes`."""
    by = reduction.get(command)
    return by is not None and is_addition(by.combine)


def is_addition(command: Command) -> bool:
    """Whether a command adds two operands, element by element."""
    return elements.get(command) == Sum((1, 1))
