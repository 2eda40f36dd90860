"""A pytest plugin that notes which functions of nnc each test enters, and how long it takes (`-p mutation.reach`)."""

from __future__ import annotations

import cProfile
import os
import pickle
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Reach:
    """Which tests enter which functions.

    Attributes:
        functions: (file, qualified name) to number.
        entered: id of a test to numbers of the functions that it enters.
        seconds: id of a test to its duration under the profiler.
    """

    functions: dict[tuple[str, str], int] = field(default_factory=dict)
    entered: dict[str, array[int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def number(self, code: CodeType) -> int | None:
        """Returns the number of a function of nnc, None for other functions."""
        if not code.co_filename.startswith(f"{ROOT}/nnc/"):
            return None
        key = (code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname.removesuffix(".<lambda>"))
        return self.functions.setdefault(key, len(self.functions))

    def tests_of(self, path: str, function: str) -> list[str]:
        """Returns the tests that enter a function; for code outside of functions those that enter the file."""
        numbers = {
            number
            for (file, name), number in self.functions.items()
            if file == path and (not function or name == function or name.startswith(f"{function}.<locals>"))
        }
        return [test for test, entered in self.entered.items() if not numbers.isdisjoint(entered)]


class Recorder:
    """Profiles each test by itself."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reach: Reach = pickle.loads(file.read_bytes()) if file.exists() else Reach()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Runs the test under the profiler, and notes it if it passes."""
        profiler = cProfile.Profile()
        profiler.enable()
        try:
            yield
        finally:
            profiler.disable()
        entries: list[Any] = profiler.getstats()  # type: ignore[attr-defined]
        codes = [entry.code for entry in entries if isinstance(entry.code, CodeType)]
        numbers = {number for code in codes if (number := self.reach.number(code)) is not None}
        self.reach.entered[item.nodeid] = array("i", sorted(numbers))
        self.reach.seconds[item.nodeid] = sum(entry.inlinetime for entry in entries)

    def pytest_sessionfinish(self) -> None:
        """Writes all that was noted."""
        self.file.write_bytes(pickle.dumps(self.reach))


def pytest_configure(config: pytest.Config) -> None:
    """Begins to note where NNC_MUTATION_REACH names a file, to which is added."""
    if file := os.environ.get("NNC_MUTATION_REACH"):
        config.pluginmanager.register(Recorder(Path(file)))
