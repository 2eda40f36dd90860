"""Tools that read docstrings in Google style find each parameter of each public signature described, and no other."""

from __future__ import annotations

import enum
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("griffe")  # the tests that need a GPU run where it is missing
import griffe

from docs.reference import modules, public_names
from nnc.errors.names import names_without_missing

logging.getLogger("griffe").setLevel(logging.ERROR)  # it warns of parameters without annotations


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "nnc"


def signatures() -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yields (name, function or class, whether its first parameter is the object) for all that users can call."""
    for module in modules().values():
        for name in public_names(module):
            value, where = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isroutine(value) and is_ours(value):
                yield where, value, False
            elif inspect.isclass(value) and is_ours(value):
                yield from signatures_of_class(where, value)
            elif callable(value) and is_ours(type(value)) and not inspect.ismodule(value):
                yield where, type(value).__call__, True


def signatures_of_class(where: str, cls: type) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    if not issubclass(cls, (BaseException, enum.Enum)) and not getattr(cls, "_is_protocol", False):
        yield where, cls, False
    for name in names_without_missing(cls, dir(cls)):
        static, method = inspect.getattr_static(cls, name), getattr(cls, name)
        if not name.startswith("_") and inspect.isroutine(method) and callable(method) and is_ours(method):
            yield f"{where}.{name}", method, not isinstance(static, (staticmethod, classmethod))


def problems(called: Callable[..., Any], has_self: bool) -> list[str]:
    """Returns how a docstring and a signature disagree, one line each."""
    names = list(inspect.signature(called).parameters)
    if has_self and names[:1] in (["self"], ["_self"]):
        del names[0]
    described = {}
    for section in griffe.Docstring(inspect.getdoc(called) or "", lineno=1).parse("google"):
        if section.kind.value in ("parameters", "attributes"):
            described.update({item.name.lstrip("*"): item.description for item in section.value})
    missing = [f"{name} is not described" for name in names if not described.get(name)]
    return missing + [f"there is no parameter {name}" for name in described if name not in names]


CALLED = {where: (called, has_self) for where, called, has_self in signatures()}


@pytest.mark.parametrize("where", CALLED)
def test_each_parameter_is_described(where: str) -> None:
    assert problems(*CALLED[where]) == []


def test_a_parameter_without_a_line_of_its_own_is_found() -> None:
    def run_in(a: int, b: int) -> None:
        """Does nothing.

        Args:     a: a number. b: another one.
        """

    def together(a: int, b: int) -> None:
        """Does nothing.

        Args:
            a, b: numbers.
        """

    def other(a: int) -> None:
        """Does nothing.

        Args:
            a: a number.
            b: another one.
        """

    assert problems(run_in, False) == ["a is not described", "b is not described"]
    assert problems(together, False) == [
        "a is not described",
        "b is not described",
        "there is no parameter a, b",
    ]
    assert problems(other, False) == ["there is no parameter b"]


def test_all_rooms_are_read() -> None:
    assert {"nnc.grad", "nnc.numpy.linalg.svd", "nnc.nn.Linear", "nnc.optim.adam", "nnc.random.normal"} <= set(CALLED)
    assert len(CALLED) > 900
