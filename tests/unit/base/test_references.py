"""Memory that a NumPy array reads too is not written over, however many views there are."""

from __future__ import annotations

import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.garbage import IN_VARIABLE

VIEWS = {"itself": np.asarray, "slice": lambda x: np.asarray(x)[1:], "reversed": lambda x: np.asarray(x)[::-1]}


def test_a_variable_of_a_function_counts_as_measured_and_a_second_reference_as_one_more() -> None:
    alone = object()
    assert sys.getrefcount(alone) == IN_VARIABLE
    other = [alone]
    assert sys.getrefcount(alone) == IN_VARIABLE + 1
    del other


@pytest.mark.parametrize("kinds", [kinds for n in range(4) for kinds in combinations(VIEWS, n)], ids="-".join)
def test_a_donated_array_is_written_over_only_without_views(kinds: tuple[str, ...]) -> None:
    compiled = nnc.compile(lambda x: x * 2 + 1, donate_argnums=0)
    x: Any = nnp.arange(1000, dtype="float32") * 1.0
    at = x.memory.ctypes.data
    views = [VIEWS[kind](x) for kind in kinds]
    before = [view.copy() for view in views]
    result = compiled(x)
    np.testing.assert_array_equal(np.asarray(result), np.arange(1000, dtype=np.float32) * 2 + 1)
    for view, old in zip(views, before, strict=True):
        np.testing.assert_array_equal(view, old)
    assert (result.memory.ctypes.data == at) == (not kinds)
