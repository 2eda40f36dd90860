"""Shortens the longest tables of tests in CI, whose time is bounded; everywhere else they run whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def sampled(values: Sequence[T], step: int) -> Sequence[T]:
    """Every `step`-th of some values where HYPOTHESIS_PROFILE is "ci", else all of them.

    Args:
        values: cases of a test.
        step: 2 or more.
    """
    return values[::step] if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else values
