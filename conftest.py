"""How doctests are read, the names they use without importing them, and registries that no test leaves changed."""

from __future__ import annotations

import dataclasses
import doctest
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import ATTRIBUTES, COMMANDS, PASSES, GraphBuilder, TensorSpec, command
from nnc.graph.serialize import RECORDS

_LABEL = re.compile(r"^ *Example: +(?=>>> )", re.MULTILINE)
_PARSE = doctest.DocTestParser.parse


def parse_house_form(self: doctest.DocTestParser, string: str, name: str = "<string>") -> list[Any]:
    """Reads docstrings whose first example stands behind its label; doctest by itself would skip that line."""
    return _PARSE(self, _LABEL.sub(lambda match: " " * len(match[0]), string), name)


doctest.DocTestParser.parse = parse_house_form  # type: ignore[method-assign]


@pytest.fixture(autouse=True, scope="session")
def names_in_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(
        nnc=nnc, nnp=nnp, np=np, dataclasses=dataclasses, command=command, make_graph=nnc.make_graph
    )
    doctest_namespace.update(GraphBuilder=GraphBuilder, TensorSpec=TensorSpec)


@contextmanager
def restored_registries() -> Iterator[None]:
    """Forgets the commands, columns, cells, passes and storable classes that are added within the block."""
    tables: list[dict[Any, Any]] = [
        COMMANDS,
        ATTRIBUTES,
        PASSES,
        RECORDS,
        *(column._cells for column in ATTRIBUTES.values()),
    ]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)


@pytest.fixture
def own_registries() -> Iterator[None]:
    """For tests that register something: it is forgotten after the test."""
    with restored_registries():
        yield


@pytest.fixture(autouse=True)
def doctests_register_for_themselves(request: pytest.FixtureRequest) -> Iterator[None]:
    if isinstance(request.node, pytest.DoctestItem):
        with restored_registries():
            yield
    else:
        yield
