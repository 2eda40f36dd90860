"""Runs commands: by the innermost trace among the operands and the ambient one, else by the eager interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from nnc.base.context import get_context
from nnc.base.dtypes import plain_dtype
from nnc.errors import InternalError, TraceError, user_error

__all__ = ["Command", "Interpreter", "bind", "find_interpreter", "set_eager"]


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """An operation: its name, how many inputs it takes (None: any number) and how many outputs it yields (None: it depends).

    Calling a command with arrays, tracers or symbols runs, traces or records it.

    Args:
        name: unique.
        arity: number of inputs; None: any number.
        outputs: number of outputs; None: it depends.

    Example:
        >>> command("exp").arity
        1
    """

    name: str
    arity: int | None = 1
    outputs: int | None = 1

    def __call__(self, *args: Any, graphs: tuple[Any, ...] = (), **params: Any) -> Any:
        """Runs, traces or records the command; parameters are static and keyword-only."""
        if "dtype" in params:
            params["dtype"] = plain_dtype(params["dtype"])
        outputs = bind(self, args, params, graphs)
        return outputs[0] if self.outputs == 1 else tuple(outputs)

    def __repr__(self) -> str:
        return self.name


class Interpreter(Protocol):
    """Gives a meaning to commands: runs them, records them, differentiates or batches them.

    Example:
        >>> find_interpreter([]).level  # of the eager one, below all traces
        -1
    """

    level: int
    alive: bool

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Any, ...]
    ) -> Sequence[Any]:
        """Returns the outputs of a command on these operands.

        Args:
            command: an operation.
            args: operands.
            params: static parameters by name.
            graphs: sub-graphs of the command.
        """


@dataclass(slots=True)
class _Eager:
    interpreter: Interpreter | None = None


# A hook: commands run on arrays, which stand above graphs; as an argument it would stand in every call of a command.
_EAGER = _Eager()


def set_eager(interpreter: Interpreter) -> None:
    """Installs the interpreter at the bottom, which runs commands on concrete arrays.

    Args:
        interpreter: the interpreter, which runs commands on arrays.

    Example:
        >>> set_eager(find_interpreter([]))  # the one that there is
    """
    _EAGER.interpreter = interpreter


@contextmanager
def replaced_eager(interpreter: Interpreter) -> Iterator[None]:
    """Within the block, another interpreter runs commands on concrete arrays."""
    usual = _EAGER.interpreter
    _EAGER.interpreter = interpreter
    try:
        yield
    finally:
        _EAGER.interpreter = usual


def find_interpreter(args: Sequence[Any]) -> Interpreter:
    """Returns the innermost trace among `args` and the ambient one, else the eager interpreter.

    Args:
        args: operands.

    Raises:
        TraceError: an operand is a tracer whose trace has ended.

    Example:
        >>> type(find_interpreter([nnp.ones(2)])).__name__
        'EagerInterpreter'
    """
    context = get_context()
    top: Interpreter | None = context.staging
    level = -2 if top is None else top.level  # arrays of devices come next, then dynamic graphs, then traces
    for arg in args:
        trace = getattr(arg, "owner", None)
        if trace is not None:
            if not trace.alive:
                raise escaped_tracer(arg)
            if trace.level > level:
                top, level = trace, trace.level
    top = top or context.device or _EAGER.interpreter
    if top is None:
        raise InternalError("no eager interpreter is installed")
    return top


def escaped_tracer(tracer: Any) -> TraceError:
    """Returns the error for a tracer used after its trace has ended."""
    made = f"It was made at {tracer.source.describe()}" if tracer.source is not None else ""
    return user_error(
        TraceError,
        "escaped tracer",
        f"a value of an earlier trace ({tracer.shown}) is used after that trace ended. {made}".rstrip(),
        fix="return the value from the traced function instead of storing it in a global, an attribute or a list.",
    )


def bind(command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Any, ...] = ()) -> Sequence[Any]:
    """Runs, records or transforms one command; returns the sequence of its outputs.

    Args:
        command: an operation.
        args: operands.
        params: static parameters by name.
        graphs: sub-graphs of the command.

    Example:
        >>> bind(command("neg"), [nnp.asarray([1.0, 2.0])], {})[0]
        Array([-1., -2.], dtype=float32)
    """
    return find_interpreter(args).process(command, args, params, graphs)
