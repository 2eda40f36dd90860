"""The columns `onnx` and `of_complex`: how commands are written as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from nnc.errors import UnsupportedError, user_error
from nnc.graph import Attribute, Node

if TYPE_CHECKING:
    from nnc.onnx.writers.writer import Writer

Write = Callable[["Writer", Node, list[str]], "str | list[str]"]
W = TypeVar("W", bound=Write)

onnx: Attribute[Write] = Attribute(
    "onnx", "(writer, node, names of its operands) -> the names of its results, whose nodes the writer has been given"
)
of_complex: Attribute[Write] = Attribute(
    "onnx_complex", "as `onnx`, for nodes with complex operands or results: real values with a last axis of 2"
)


def writes(*names: str, column: Attribute[Write] = onnx) -> Callable[[W], W]:
    """Makes a function the way in which commands are written."""

    def add(write: W) -> W:
        for name in names:
            column.set(name, write)
        return write

    return add


def refused(node: Node, reason: str) -> UnsupportedError:
    """Builds the error of a node that has no form in ONNX."""
    fix = "compute this part outside of the exported function, or register a writer in the column `onnx`."
    return user_error(
        UnsupportedError, "nnc.onnx.export", f"{node.command.name}: {reason}.", fix=fix, source=node.source
    )


def kind(node: Node, operand: int = 0) -> str:
    """Returns the kind of an operand's dtype, as NumPy's letters name it; V for bfloat16, which NumPy does not know."""
    dtype: Any = node.inputs[operand].spec.dtype
    return "f" if dtype.name == "bfloat16" else str(dtype.kind)
