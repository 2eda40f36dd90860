from __future__ import annotations

import numpy as np

import nnc
import nnc.numpy as nnp


def test_a_call_within_a_transform_that_is_not_compiled_is_explained() -> None:
    square = nnc.compile(lambda x: nnp.sum(x * x))
    x = np.float32([1, 2])
    assert "has not been called yet" in nnc.debug.explain(square)
    np.testing.assert_array_equal(nnc.grad(square)(x), 2 * x)
    assert "compile the transform" in nnc.debug.explain(square)
    np.testing.assert_array_equal(nnc.vmap(square)(x[None]), [5])
    assert "compile the transform" in nnc.debug.explain(square)
    square(x)
    assert "first call" in nnc.debug.explain(square)
    square(x)
    assert "reused" in nnc.debug.explain(square)
