"""Elements that are moved on a GPU: tensors in another order, and complex numbers of 16 bytes."""

from __future__ import annotations

import numpy as np
import pytest

from nnc.base.dtypes import BY_NAME
from tests.unit.backends.cpu.against_reference import LAYOUTS, odd, values
from tests.unit.backends.cuda.unfused import call_of, check_calls

ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1))


@pytest.mark.parametrize("kind", list(BY_NAME))
def test_a_tensor_is_written_in_another_order(kind: str) -> None:
    x = values(kind, (5, 7, 40))
    sources = [layout(x) for layout in LAYOUTS if layout is not odd]
    check_calls([call_of("reorder", [source], {"permutation": order}) for source in sources for order in ORDERS])


def test_complex_numbers_of_16_bytes_are_moved_as_two_words() -> None:
    x, y = values("complex128", (4, 6)), values("complex128", (3, 6), 1)
    check_calls(
        [
            call_of("concatenate", [x, y], {"axis": 0}),
            call_of("pad", [x, np.asarray(1 + 2j)], {"low": (1, 0), "high": (0, 2), "interior": (1, 0)}),
            call_of("transpose", [x], {"permutation": (1, 0)}),
            call_of("reshape", [x], {"shape": (2, 12)}),
            call_of("copy", [x], {}),
        ]
    )
