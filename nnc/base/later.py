"""Functions whose modules are imported when they are first called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """Returns a function that calls a function, or a class, of a module that is imported at the first call.

    Args:
        module: a file of the caller's own package, `f"{__package__}.file"`. Only `nnc/compiled/device_kinds.py` names other rooms.

    Example:
        >>> later("math", "sqrt")(4)
        2.0
    """

    @cache
    def find() -> Any:
        return getattr(importlib.import_module(module), name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return find()(*args, **kwargs)

    call.__name__, call.find = name, find  # type: ignore[attr-defined]
    return call


def resolve(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that `later` stands for; others as they are."""
    return getattr(function, "find", lambda: function)()
