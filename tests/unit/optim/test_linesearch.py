"""Line searches beside recorded finds of Optax, and parameters as vectors."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.optim.linesearch import inner, ravel, unravel
from tests.unit.optim.line_searches import CASES, nnc_searches, recorded_searches


@pytest.mark.parametrize("case", CASES, ids="/".join)
def test_searches_end_where_the_peer_s_did(case: tuple[str, str]) -> None:
    np.testing.assert_allclose(nnc_searches(case), recorded_searches(case), 1e-7, 1e-9)


TREE = {
    "a": nnp.asarray(np.arange(6.0, dtype=np.float32).reshape(2, 3)),
    "count": nnp.asarray(7),
    "z": nnp.asarray(np.array([1 + 2j, 3 - 1j], np.complex64)),
    "name": "kept",
}


def test_a_tree_as_a_vector_and_back_is_the_tree() -> None:
    vector = ravel(TREE)
    assert vector.dtype == "complex64" and np.array_equal(vector, [0, 1, 2, 3, 4, 5, 1 + 2j, 3 - 1j])
    back = unravel(TREE, vector)
    assert back["name"] == "kept" and int(back["count"]) == 7
    for name in ("a", "z"):
        assert back[name].dtype == TREE[name].dtype and np.array_equal(back[name], TREE[name])


def test_a_real_vector_fills_complex_leaves_and_a_complex_one_real_leaves() -> None:
    back = unravel(TREE, nnp.asarray(np.arange(8.0)))
    assert np.array_equal(back["z"], [6, 7]) and back["z"].dtype == "complex64"
    back = unravel(TREE, nnp.asarray(np.arange(8.0) + 5j))
    assert np.array_equal(back["a"].reshape(-1), np.arange(6.0)) and back["a"].dtype == "float32"
    assert np.array_equal(back["z"], [6 + 5j, 7 + 5j])


def test_the_inner_product_of_complex_vectors_is_that_of_their_parts() -> None:
    x, y = nnp.asarray(np.array([1 + 2j, -1j])), nnp.asarray(np.array([3 - 1j, 2 + 5j]))
    assert float(inner(x, y)) == 1 * 3 - 2 * 1 - 1 * 5


def test_lbfgs_finds_complex_parameters() -> None:
    target = nnp.asarray(np.array([1.5 - 2j, -0.5 + 1j]))
    loss = lambda p: nnp.sum(nnp.abs(p["z"] - target) ** 2) + (p["r"] - 2.0) ** 4
    optimizer = optim.lbfgs()
    p = {"r": nnp.asarray(np.array(0.5)), "z": nnp.zeros(2, "complex128")}
    state = optimizer.init(p)
    for _ in range(15):
        value, grad = nnc.value_and_grad(loss)(p)
        grad = nnc.tree.map(nnp.conj, grad)  # the direction of steepest ascent
        updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=loss)
        p = optim.apply_updates(p, updates)
    assert np.allclose(p["z"], target, atol=1e-5) and abs(float(p["r"]) - 2.0) < 0.1
