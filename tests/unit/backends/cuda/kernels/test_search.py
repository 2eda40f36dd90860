"""searchsorted on a GPU: places of values in sorted rows, for all dtypes and layouts."""

from __future__ import annotations

import numpy as np
import pytest

import nnc.numpy as nnp
from tests.unit.backends.cpu.against_reference import REAL, values
from tests.unit.backends.cuda.against_reference import Case, check, check_on_device, placed

SHAPES = (
    ((1,), (5,)),
    ((2,), (3, 4)),
    ((33,), ()),
    ((3, 100), (3, 7)),
    ((2, 3, 20), (2, 3, 4, 5)),
    ((0,), (3,)),
    ((2, 5), (2, 0)),
    ((1000,), (400,)),
)


@pytest.mark.parametrize("kind", REAL)
def test_values_come_before_or_behind_equal_ones(kind: str) -> None:
    cases = list[Case]()
    for turn, (rows, sought) in enumerate(SHAPES):
        x = values(kind, rows, turn)
        x = np.sort(x.astype(np.float32), -1).astype(x.dtype) if kind in ("float16", "bfloat16") else np.sort(x, -1)
        for side in ("left", "right"):
            cases.append(
                ("searchsorted", [placed(x, turn), placed(values(kind, sought, turn + 9), turn + 1)], {"side": side})
            )
    check(*cases)


@pytest.mark.parametrize("n", [*range(1, 10), 15, 16, 17, 64, 65])
def test_every_place_of_a_row_is_found(n: int) -> None:
    row, sought = np.arange(n, dtype=np.int32), np.arange(-1, 2 * n + 1, dtype=np.int32)
    check(*[("searchsorted", [2 * row, sought], {"side": side}) for side in ("left", "right")])


def test_it_runs_on_the_device() -> None:
    x, y = np.linspace(-1, 1, 40, dtype=np.float32), np.linspace(-2, 2, 33, dtype=np.float32)
    check_on_device(lambda x, y: (nnp.searchsorted(x, y), nnp.searchsorted(x, y, side="right")), x, y)
