"""GaLore: how small its state is, and which gradients it keeps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, TreeError


def test_gradients_of_low_rank_are_kept_whole() -> None:
    rng = np.random.default_rng(0)
    for shape in ((7, 4), (4, 7)):
        g = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1]))
        optimizer = optim.galore(1.0, rank=2, base_optimizer=optim.identity())
        updates, state = optimizer.update(nnp.asarray(g), optimizer.init(nnp.asarray(g)), nnp.asarray(g))
        assert np.allclose(updates, -g)
        basis = np.asarray(state[0].projector)
        assert basis.shape == (7, 2) and np.allclose(basis.T @ basis, np.eye(2))


def test_other_gradients_lose_their_smallest_singular_values() -> None:
    u, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 3)))
    g = u @ np.diag([3.0, 2.0, 1e-3])
    optimizer = optim.scale_by_galore(2, base_optimizer=optim.identity())
    updates, _ = optimizer.update(nnp.asarray(g), optimizer.init(nnp.asarray(g)))
    assert np.allclose(updates, u[:, :2] @ np.diag([3.0, 2.0]) @ np.eye(2, 3))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_subspace_serves_as_many_updates_as_it_is_told(compiled: bool) -> None:
    grads = np.random.default_rng(2).normal(size=(5, 4, 3))
    optimizer = optim.scale_by_galore(2, 2)
    update, state = (
        nnc.compile(optimizer.update) if compiled else optimizer.update,
        optimizer.init(nnp.asarray(grads[0])),
    )
    bases = []
    for g in grads:
        _, state = update(nnp.asarray(g), state)
        bases.append(np.asarray(state.projector))
    same = [np.array_equal(a, b) for a, b in pairwise(bases)]
    assert same == [True, False, True, False]


def test_arrays_that_are_no_matrices_go_to_the_base_optimizer_as_they_are() -> None:
    params = {"w": nnp.ones((6, 5)), "b": nnp.ones(5), "k": nnp.ones((2, 3, 4)), "name": "x"}
    galore, adam = optim.galore(0.1, 2), optim.adamw(0.1, weight_decay=0.0)
    ours, state = galore.update(params, galore.init(params), params)
    theirs, _ = adam.update(params, adam.init(params), params)
    assert np.allclose(ours["b"], theirs["b"]) and np.allclose(ours["k"], theirs["k"]) and ours["name"] == "x"
    assert state[0].base_optimizer_state.mu["w"].shape == (2, 5) and state[0].projector["b"].size == 0


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="rank is 0(.|\n)*Fix:"):
        optim.galore(0.1, rank=0)
    with pytest.raises(ArgumentTypeError, match="base_optimizer is(.|\n)*Fix:"):
        optim.galore(0.1, base_optimizer=optim.adam)  # type: ignore[arg-type]
    twice = optim.scale_by_galore(weight_dimension_numbers=optim.GaLoreDimensionNumbers(0, 0))
    with pytest.raises(ShapeError, match="do not name each of 2 axes once(.|\n)*Fix:"):
        twice.init(nnp.ones((2, 2)))
    with pytest.raises(TreeError, match=r"weight_dimension_numbers holds 3(.|\n)*Fix:"):
        optim.scale_by_galore(weight_dimension_numbers={"w": 3}).init({"w": nnp.ones((2, 2))})
