"""Errors for names that a module or an array does not have: they name nnc's for the names of other libraries."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

from nnc.errors import MissingNameError, NncError, user_error
from nnc.migration.rows import Row, code_of, note_of
from nnc.migration.tables import SOURCES, TABLES
from nnc.tracebacks import cut_traceback

PUBLIC = (
    "nnc", "nnc.numpy", "nnc.nn", "nnc.optim", "nnc.random", "nnc.tree", "nnc.numpy.linalg", "nnc.numpy.fft", "nnc.scipy.special",
    "nnc.scipy.linalg", "nnc.scipy.stats", "nnc.scipy.signal", "nnc.scipy.integrate", "nnc.scipy.optimize",
    "nnc.nn.initializers", "nnc.debug", "nnc.io", "nnc.data",
)  # fmt: skip


def find_row(where: str, name: str) -> Row | None:
    """The row for a name that `where`, a module of nnc or nnc.Array, does not have.

    Tables of the libraries with a module of that kind come first.

    Args:
        where: name of the module, or "nnc.Array".
        name: the name that was asked for.

    Example:
        >>> code_of(find_row("nnc", "jit"))
        'nnc.compile(f)'
    """
    first = SOURCES.get(where, ())
    for source in (*first, *(other for other in TABLES if other not in first)):
        row = TABLES[source].get(name)
        if row is not None and code_of(row) != f"{where}.{name}":  # a name that nnc no longer has
            return row
    return None


def missing_name(where: str, name: str, known: Iterable[str] = ()) -> MissingNameError:
    """Builds the error for a name that a module, or an array, does not have.

    Args:
        where: the module of nnc.
        name: the name that was asked for.
        known: names of the module.

    Example:
        >>> error = missing_name("nnc", "jit")
        >>> str(error).splitlines()[0]
        "nnc: it has no 'jit'."
    """
    row = find_row(where, name)
    if row is not None:
        note = note_of(row)
        fix = f"use {code_of(row)}{f': {note}' if note else ''}."
    elif (elsewhere := _elsewhere(where, name)) is not None:
        fix = f"use {elsewhere}.{name}."
    else:
        near = get_close_matches(name, known, 1)
        fix = f"use {where}.{near[0]}, or see dir({where})." if near else f"see dir({where}) for its names."
    return user_error(MissingNameError, where, f"it has no {name!r}.", fix=fix)


def _elsewhere(where: str, name: str) -> str | None:
    """The first public module of nnc, other than `where`, that has this name."""
    for other in PUBLIC:
        if other != where and name in importlib.import_module(other).__all__:
            return other
    return None


def module_getattr(where: str) -> Callable[[str], NoReturn]:
    """The function `__getattr__` of a module, which raises MissingNameError.

    Args:
        where: name of the module.

    Example:
        >>> callable(module_getattr("nnc"))
        True
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807  (Python's name)
        is_asked_by_programs = name.startswith("__") or (find_row(where, name) is None and _is_submodule(where, name))
        if is_asked_by_programs:  # `from nnc import dtypes` asks before it imports
            raise AttributeError(f"module {where!r} has no attribute {name!r}")
        try:
            raise missing_name(where, name, importlib.import_module(where).__all__)
        except NncError as error:
            cut_traceback(error)
            raise

    return __getattr__


def _is_submodule(where: str, name: str) -> bool:
    return hasattr(sys.modules.get(where), "__path__") and importlib.util.find_spec(f"{where}.{name}") is not None


class MissingMethod:
    """A method of other libraries' arrays: to ask an array for it, or to set it, raises MissingNameError.

    Args:
        name: of the method.

    Example:
        >>> class Vector:
        ...     detach = MissingMethod("detach")
        >>> Vector().detach
        Traceback (most recent call last):
        ...
        nnc.errors.MissingNameError: nnc.Array: it has no 'detach'.
        ...
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> MissingMethod:
        if instance is None:  # programs that look through a class
            return self
        raise missing_name("nnc.Array", self.name)

    def __set__(self, instance: Any, value: Any) -> NoReturn:
        raise missing_name("nnc.Array", self.name)
