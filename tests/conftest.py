"""Settings of Hypothesis, and the tests that are left out: in CI parts of long tables, on machines without a GPU those for one."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.sampling import left_out

collect_ignore = [
    "devices/cuda/stand_in.py",  # it makes a device of this process
    "contract/nn/make_oracles.py",  # a script, which needs PyTorch
]
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


_STATES: dict[int, Any] = {}  # of the generators of test modules as their modules left them, by identity


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the same numbers from generators of its module, whichever tests ran before it."""
    for value in vars(getattr(item, "module", None) or object).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = _STATES.setdefault(id(value), value.bit_generator.state)


@pytest.fixture(autouse=True)
def _as_usual(request: pytest.FixtureRequest) -> None:
    """Tests of how programs are stored and called are not run on guarded memory, which does both in another way."""
    if request.node.get_closest_marker("unguarded"):
        request.getfixturevalue("monkeypatch").setenv("NNC_GUARD", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keeps older objects out of the collections of tests that collect garbage, which would take up to a second each."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    if code is None or not {"gc", "collect"} <= set(code.co_names) or "freeze" in code.co_names:
        return (yield)
    gc.freeze()
    try:
        return (yield)
    finally:
        gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = left_out(items)
    if unwanted:
        config.hook.pytest_deselected(items=[item for item in items if item in unwanted])
        items[:] = [item for item in items if item not in unwanted]
    if importlib.util.find_spec("cupy") is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="CuPy is not installed"))
