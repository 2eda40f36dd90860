from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator

import pytest

from tests.devices.cuda.cublaslt import FakeCublasLt
from tests.devices.cuda.machine import Machine

_NUMBERS = itertools.count(100)  # of devices: each test has one of its own


@pytest.fixture(autouse=True)
def no_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine interprets PTX, and no machine code."""
    monkeypatch.setattr(importlib.import_module("nnc.backends.cuda.compiler.compiler"), "find_linker", lambda: None)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine whose device has the name `machine.name`."""
    made = Machine()
    made.name = f"cuda:{next(_NUMBERS)}"
    known = importlib.import_module("nnc.device.kinds")
    known._DEVICES[made.name] = made.device(made.name)
    yield made
    assert made.faults == []


@pytest.fixture
def library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> FakeCublasLt:
    """The machine's cuBLASLt."""
    made = FakeCublasLt(machine)
    monkeypatch.setattr(importlib.import_module("nnc.backends.cuda.libraries.dot"), "load_library", lambda: made)
    return made
