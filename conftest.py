"""Names that doctests use without importing them; the session's cache; registries that no test leaves changed."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import nnc  # before NumPy, whose OpenBLAS is kept to the instructions of NNC_CPU while it is loaded

# isort: split

import numpy as np
import pytest

import nnc.numpy as nnp
import nnc.testing.devices  # "sim:0" and "ptx:0" for all tests
from nnc.graph import ATTRIBUTES, COMMANDS, PASSES, GraphBuilder, TensorSpec, command
from nnc.graph.registry import REGISTRY
from nnc.graph.serialize import RECORDS
from nnc.run.background import WRITER


def pytest_configure(config: pytest.Config) -> None:
    """Kernels that tests compile are kept in a folder of this process, not with the user's; processes that tests start share it."""
    folder = tempfile.TemporaryDirectory(prefix="nnc-tests-", ignore_cleanup_errors=True)  # helpers may still write
    config.add_cleanup(partial(_remove, folder))
    os.environ["NNC_CACHE_DIR"] = folder.name


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    for thread in threading.enumerate():
        if thread.name == WRITER:
            thread.join()
    folder.cleanup()


@pytest.fixture(autouse=True, scope="session")
def names_in_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(
        nnc=nnc, nnp=nnp, np=np, dataclasses=dataclasses, command=command, make_graph=nnc.make_graph
    )
    doctest_namespace.update(GraphBuilder=GraphBuilder, TensorSpec=TensorSpec)


for module in pkgutil.walk_packages(nnc.__path__, "nnc."):  # what they register is not to be forgotten with a test
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)


@contextmanager
def restored_registries() -> Iterator[None]:
    """Forgets the commands, columns, cells, passes and storable classes that are added within the block."""
    tables: list[dict[Any, Any]] = [
        COMMANDS,
        ATTRIBUTES,
        PASSES,
        RECORDS,
        *ATTRIBUTES.values(),
        *(column._priorities for column in ATTRIBUTES.values()),
    ]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)
        REGISTRY.version += 1


@pytest.fixture
def own_registries() -> Iterator[None]:
    """For tests that register something: it is forgotten after the test."""
    with restored_registries():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Doctests register for themselves; a hook, since a fixture would be set up for each of the other tests as well."""
    if not isinstance(item, pytest.DoctestItem):
        return (yield)
    with restored_registries():
        return (yield)
