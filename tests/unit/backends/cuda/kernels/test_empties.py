"""Commands on empty operands on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import BY_NAME
from tests.unit.backends.cpu.against_reference import REAL
from tests.unit.backends.cuda.against_reference import check


@pytest.mark.parametrize("kind", REAL)
def test_the_result_for_no_elements_is_the_identity(kind: str) -> None:
    x = np.zeros((0, 3), BY_NAME[kind])
    names = ["reduce_sum", "reduce_prod"] if kind != "bool" else ["reduce_and", "reduce_or"]
    check(*[(name, [x], {"axes": axes}) for name in names for axes in ((0,), (1,), (0, 1))], bits=True)


def test_commands_on_nothing_run_on_the_device() -> None:
    def function(x: Any) -> Any:
        rows = nnp.exp(x) + 1
        return (
            rows,
            nnc.nn.softmax(rows),
            nnp.sum(rows, axis=0),
            nnp.prod(x),
            nnc.nn.logsumexp(x, axis=1),
            nnp.max(x, axis=1),
        )

    f = nnc.compile(function)
    found = f(nnc.device_put(np.zeros((0, 3), np.float32), "ptx:0"))
    assert "by their references" not in nnc.debug.explain(f)
    for x, y in zip(found, function(np.zeros((0, 3), np.float32)), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
