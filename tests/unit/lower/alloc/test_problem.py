"""Facts about blocks that the planners use."""

import numpy as np
import pytest

from nnc.lower.alloc.problem import distinct


@pytest.mark.parametrize("values", [[], [3], [2, 2, 2], [5, -1, 5, 0, 7, 0], list(range(9, 0, -1))])
def test_distinct_values_are_those_of_numpy_in_its_order(values) -> None:
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(distinct(array), np.unique(array))
