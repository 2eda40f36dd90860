"""Fixtures of all tests of nnc.numpy: the comparison with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc import Array
from nnc.base import dtypes


def check_same(got: Any, want: Any, tolerance: float = 1e-12) -> None:
    """Asserts that a result has the shape, the dtype (but float32 for floats made of integers) and the values of NumPy's."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            check_same(one, other, tolerance)
        return
    want = np.asarray(want)
    assert isinstance(got, Array)
    assert got.shape == want.shape
    if got.dtype != want.dtype:
        assert (got.dtype, want.dtype) in [(dtypes.float32, np.float64), (dtypes.complex64, np.complex128)]
        tolerance = max(tolerance, 1e-5)
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)


@pytest.fixture
def same() -> Callable[..., None]:
    """`check_same`."""
    return check_same
