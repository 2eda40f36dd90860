"""The table of operators: rows of a domain, a name and the first version that means it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nnc.onnx.model import Node


class Row(NamedTuple):
    """A meaning of an operator, from version `since` of its domain on.

    `function(node, *inputs)` returns one value or a tuple of them. An input that the model leaves out is None.
    """

    since: int
    function: Callable[..., Any]


# Rows by domain ("" is ai.onnx) and name, newest first. Families add to it when they are imported.
OPERATORS: dict[tuple[str, str], list[Row]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function `(node, *inputs)` the meaning of operators from a version on."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            rows = OPERATORS.setdefault((domain, name), [])
            rows.append(Row(since, function))
            rows.sort(key=lambda row: -row.since)
        return function

    return add


def rows(functions: Mapping[str, Callable[..., Any]], since: int = 1, domain: str = "") -> None:
    """Makes functions of the inputs alone, such as `nnc.numpy.tanh`, the meanings of operators."""
    for name, function in functions.items():
        operator(name, since=since, domain=domain)(_without_node(function))


def _without_node(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, *inputs: function(*inputs)


def find(node: Node) -> Callable[..., Any] | None:
    """Returns the meaning of a node in the version that its model asks for; None if no row has one."""
    found = OPERATORS.get((node.domain, node.operator), [])
    return next((row.function for row in found if row.since <= node.version), None)
