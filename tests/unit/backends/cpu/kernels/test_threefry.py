from __future__ import annotations

import numpy as np
import pytest

from tests.unit.backends.cpu.against_reference import check, spaced


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_draws_have_the_bits_of_the_reference(width: int) -> None:
    rng = np.random.default_rng(0)
    keys, starts = rng.integers(0, 2**32, (4, 3, 2), np.uint32), np.full((4, 3), 2**32 - 3, np.uint64)
    for shape in ((), (16,), (3, 7), (0,), (300, 70)):
        params = {"shape": shape, "width": width}
        check("random_bits", [keys[0, 0], np.asarray(5, np.uint64)], params)
        check("random_bits", [keys, starts], params)
    params = {"shape": (5,), "width": width}
    check("random_bits", [spaced(keys)[::-1], starts + np.uint64(2**64 - 2**32)], params)
