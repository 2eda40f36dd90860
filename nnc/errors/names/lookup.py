"""Errors for names that a module or an array does not have: they name nnc's for the names of other libraries."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import getattr_static
from operator import attrgetter
from typing import Any, NoReturn

import nnc.errors.names
from nnc.base.garbage import collection_paused
from nnc.errors import MissingNameError, NncError, user_error
from nnc.errors.names.tables import SOURCES, TABLES, Row, code_of, note_of
from nnc.errors.tracebacks import cut_traceback

# Public modules, by the attributes that lead to them.
_PUBLIC = (
    "numpy", "nn", "optim", "random", "tree", "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.stats",
    "scipy.signal", "scipy.integrate", "scipy.optimize", "nn.initializers", "debug", "io", "data", "distributed", "testing",
)  # fmt: skip


def find_row(where: str, name: str) -> Row | None:
    """Returns the row for a name that `where`, a module of nnc or nnc.Array, does not have.

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


def missing_name(where: str, name: str, known: Iterable[str] = (), shown: str = "") -> MissingNameError:
    """Builds the error for a name that a module, or an array, does not have.

    Args:
        where: the module of nnc, or a class in SOURCES.
        name: the name that was asked for.
        known: names of the module.
        shown: the name of the object in the message; by default `where`.

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
    return user_error(MissingNameError, shown or where, f"it has no {name!r}.", fix=fix)


def _elsewhere(where: str, name: str) -> str | None:
    """Returns the first public module of nnc, other than `where`, that has this name."""
    for module in (nnc, *(attrgetter(path)(nnc) for path in _PUBLIC)):
        if module.__name__ != where and name in module.__all__:
            return str(module.__name__)
    return None


def module_getattr(where: str, later: Mapping[str, str] = types.MappingProxyType({})) -> Callable[[str], Any]:
    """Returns the function `__getattr__` of a module. It imports some names when they are first asked for, and raises
    MissingNameError for names that are not there.

    Args:
        where: name of the module.
        later: for each of its names that come later the module that has it, or is it.

    Example:
        >>> callable(module_getattr("nnc"))
        True
    """

    def __getattr__(name: str) -> Any:  # noqa: N807  (Python's name)
        if name in later:
            with collection_paused():
                module = importlib.import_module(later[name])
            found = module if later[name] == f"{where}.{name}" else getattr(module, name)
            setattr(sys.modules[where], name, found)
            return found
        is_asked_by_programs = name.startswith("__") or (find_row(where, name) is None and _is_submodule(where, name))
        if is_asked_by_programs:  # `from nnc.base import dtypes` asks before it imports
            raise AttributeError(f"module {where!r} has no attribute {name!r}")
        try:
            raise missing_name(where, name, sys.modules[where].__all__)
        except NncError as error:
            cut_traceback(error)
            raise

    return __getattr__


def public_names(
    where: str, later: Mapping[str, str] = types.MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a public module: see `module_getattr`."""
    return module_getattr(where, later), lambda: sorted(sys.modules[where].__all__)


def _is_submodule(where: str, name: str) -> bool:
    return hasattr(sys.modules.get(where), "__path__") and importlib.util.find_spec(f"{where}.{name}") is not None


class MissingMethod:
    """A method of other libraries' arrays: to ask an array for it, or to set it, raises MissingNameError.

    Args:
        name: the name of the method.

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
        try:
            raise missing_name("nnc.Array", self.name)
        except MissingNameError as error:
            cut_traceback(error)
            raise

    def __set__(self, instance: Any, value: Any) -> NoReturn:
        try:
            raise missing_name("nnc.Array", self.name)
        except MissingNameError as error:
            cut_traceback(error)
            raise


class MissingAttribute:
    """A name of other libraries' objects: to ask an instance or the class for it raises MissingNameError.

    Fields and methods of this name go before it, for it is no data descriptor. `dataclass` sees no default, since the class does
    not have the name either.

    Args:
        name: the name of the attribute.
        where: the class, a key of SOURCES.

    Example:
        >>> class Layer:
        ...     parameters = MissingAttribute("parameters", "nnc.nn.Module")
        >>> Layer().parameters
        Traceback (most recent call last):
        ...
        nnc.errors.MissingNameError: Layer: it has no 'parameters'.
        ...
    """

    __slots__ = ("name", "where")

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self.where = where

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        try:
            raise missing_name(self.where, self.name, shown=owner.__name__)
        except MissingNameError as error:
            cut_traceback(error)
            raise


def add_missing(cls: type, where: str) -> None:
    """Adds to a class a MissingAttribute for each name in its tables that it does not have.

    Args:
        cls: the class.
        where: its key in SOURCES.

    Example:
        >>> class Layer:
        ...     train = True
        >>> add_missing(Layer, "nnc.nn.Module")
        >>> Layer.train, hasattr(Layer, "eval")
        (True, False)
    """
    for source in SOURCES[where]:
        for name in TABLES[source]:
            if name not in dir(cls):
                setattr(cls, name, MissingAttribute(name, where))


def names_without_missing(cls: type, names: Iterable[str]) -> list[str]:
    """Returns the names that are no MissingMethod and no MissingAttribute of a class, for `__dir__`.

    Args:
        cls: the class.
        names: the names of its attributes and those of an instance.

    Example:
        >>> class Layer:
        ...     parameters = MissingAttribute("parameters", "nnc.nn.Module")
        >>> names_without_missing(Layer, ["parameters", "weight"])
        ['weight']
    """
    kinds = (MissingMethod, MissingAttribute)
    return [name for name in names if not isinstance(getattr_static(cls, name, None), kinds)]


def listed_names(package: str, *others: str, source: types.ModuleType | None = None) -> tuple[str, ...]:
    """Returns the names that a package has imported from its files by `*`, or from those of `source`, and `others`; sorted."""
    own = vars(sys.modules[package])
    files = [module for name, module in sys.modules.items() if name.rpartition(".")[0] == package]
    files += [source] if source is not None else []
    listed = {
        name
        for file in files
        for name in getattr(file, "__all__", ())
        if name in own and own[name] is vars(file).get(name)
    }
    return tuple(sorted({*listed, *others}))
