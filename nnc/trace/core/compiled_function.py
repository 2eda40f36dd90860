"""Transforms of compiled functions, which are compiled functions themselves: no command of them runs alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

Fun = Callable[..., Any]
Settings = tuple[tuple[Any, ...], dict[str, Any]]  # of a transform, by position and by name
Arguments = Literal["same", "rows"]  # of the transformed function: those of the function, or rows of them


class CompiledFunction:
    """A function that `nnc.compile` made, as transforms know it."""

    def transformed(self, transform: Callable[..., Fun], settings: Settings, arguments: Arguments = "same") -> Fun:
        """Returns a transform of the function as a compiled function; one for equal settings."""
        raise NotImplementedError


def compiled_transform(arguments: Arguments = "same") -> Callable[[F], F]:
    """Decorates a transform of functions: that of a compiled function is compiled, with the same options.

    It is not where rows are taken in chunks: a program would hold the commands of all chunks.
    """

    def decorate(transform: F) -> F:
        @wraps(transform)
        def apply(fun: Fun, *args: Any, **kwargs: Any) -> Fun:
            if isinstance(fun, CompiledFunction) and kwargs.get("chunk_size") is None:
                return fun.transformed(transform, (args, kwargs), arguments)
            return cast(Fun, transform(fun, *args, **kwargs))

        return cast(F, apply)

    return decorate
