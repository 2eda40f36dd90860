"""A pytest plugin that runs the tests named in a file, in that order, and no others (`-p mutation.chosen`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the chosen tests, the first to be run first."""
    names = Path(os.environ["NNC_MUTATION_TESTS"]).read_text().splitlines()
    places = {name: place for place, name in enumerate(names)}
    items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
