"""Projections beside Optax's stored results, and beside the definition of the nearest point.

python -m tests.unit.optim.test_projections        stores Optax's results in recorded_projections.npz: Optax must be installed
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, DTypeError, ShapeError

RECORDED = Path(__file__).with_name("recorded_projections.npz")
_RNG = np.random.default_rng(5)
POINT = {"a": _RNG.normal(size=(2, 3)) * 2, "b": _RNG.normal(size=4) * 2}
NORMAL = {"a": _RNG.normal(size=(2, 3)), "b": _RNG.normal(size=4)}
BOUNDS = {"a": np.zeros((2, 3)), "b": np.ones(4)}

CASES: dict[str, Callable[[Any], Any]] = {  # from the module to the projection of POINT
    "non_negative": lambda o: o.projection_non_negative(POINT),
    "box of trees": lambda o: o.projection_box(
        POINT, {"a": -BOUNDS["b"][0] * np.ones((2, 3)), "b": np.zeros(4)}, BOUNDS
    ),
    "simplex": lambda o: o.projection_simplex(POINT),
    "simplex of three": lambda o: o.projection_simplex(POINT, 3.0),
    "l1_sphere": lambda o: o.projection_l1_sphere(POINT, 2.0),
    "l1_ball": lambda o: o.projection_l1_ball(POINT, 2.0),
    "l1_ball around it": lambda o: o.projection_l1_ball(POINT, 100.0),
    "l2_sphere": lambda o: o.projection_l2_sphere(POINT, 2.0),
    "l2_ball": lambda o: o.projection_l2_ball(POINT, 2.0),
    "l2_ball around it": lambda o: o.projection_l2_ball(POINT, 100.0),
    "linf_ball": lambda o: o.projection_linf_ball(POINT, 0.75),
    "vector": lambda o: o.projection_vector(POINT, NORMAL),
    "hyperplane": lambda o: o.projection_hyperplane(POINT, NORMAL, 0.5),
    "halfspace": lambda o: o.projection_halfspace(POINT, NORMAL, -20.0),
    "halfspace around it": lambda o: o.projection_halfspace(POINT, NORMAL, 100.0),
}


def flat(tree: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([np.ravel(np.asarray(tree[name])) for name in ("a", "b")])


@pytest.mark.parametrize("name", CASES)
def test_projections_are_those_of_optax(name: str) -> None:
    with np.load(RECORDED) as file:
        wanted = file[name]
    np.testing.assert_allclose(flat(CASES[name](optim)), wanted, rtol=1e-12, atol=1e-12)


def test_numbers_bound_all_leaves() -> None:
    assert np.array_equal(flat(optim.projection_box(POINT, -0.5, 1.5)), np.clip(flat(POINT), -0.5, 1.5))
    assert np.array_equal(flat(optim.projection_hypercube(POINT, 0.75)), np.clip(flat(POINT), 0, 0.75))


CONVEX: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray[Any, Any]], bool]]] = {
    "non_negative": (optim.projection_non_negative, lambda y: bool(np.all(y >= 0))),
    "hypercube": (optim.projection_hypercube, lambda y: bool(np.all((y >= 0) & (y <= 1)))),
    "simplex": (optim.projection_simplex, lambda y: bool(np.all(y >= 0)) and np.isclose(y.sum(), 1)),
    "l1_ball": (optim.projection_l1_ball, lambda y: np.abs(y).sum() <= 1 + 1e-12),
    "l2_ball": (optim.projection_l2_ball, lambda y: np.linalg.norm(y) <= 1 + 1e-12),
    "linf_ball": (optim.projection_linf_ball, lambda y: bool(np.all(np.abs(y) <= 1))),
}


@pytest.mark.parametrize("name", CONVEX)
def test_no_point_of_the_set_is_nearer(name: str) -> None:
    project, is_member = CONVEX[name]
    rng = np.random.default_rng(0)
    members = [np.asarray(project(rng.normal(size=6) * scale)) for scale in (0.1, 1.0, 5.0) for _ in range(20)]
    for scale in (0.2, 1.0, 4.0):
        x = rng.normal(size=6) * scale
        y = np.asarray(project(x))
        assert is_member(y) and np.allclose(project(y), y)
        assert all((x - y) @ (z - y) <= 1e-9 for z in members)  # the obtuse angle that only the nearest point has


def test_points_of_the_set_stay_in_every_bit() -> None:
    x = {"a": nnp.asarray([0.1, 0.2]), "b": nnp.asarray(0.3), "name": "x", "n": np.arange(2)}
    for project in (
        optim.projection_l1_ball,
        optim.projection_l2_ball,
        optim.projection_linf_ball,
        optim.projection_hypercube,
    ):
        y = project(x)
        assert np.array_equal(y["a"], x["a"]) and float(y["b"]) == float(x["b"])
        assert y["name"] == "x" and np.array_equal(y["n"], x["n"])


def test_the_simplex_is_projected_onto_under_compile_vmap_and_grad() -> None:
    rows = np.random.default_rng(1).normal(size=(3, 5))
    mapped = nnc.compile(nnc.vmap(optim.projection_simplex))(rows)
    assert np.allclose(mapped, [optim.projection_simplex(row) for row in rows]) and np.allclose(np.sum(mapped, 1), 1)
    weights = np.arange(5.0)
    f = lambda x: nnp.sum(optim.projection_simplex(x) * weights)
    support = np.asarray(optim.projection_simplex(rows[0])) > 0
    assert np.allclose(nnc.grad(f)(rows[0]), support * (weights - weights[support].mean()))


def test_projected_descent_finds_the_minimum_over_the_simplex() -> None:
    target, optimizer = nnp.asarray(np.array([2.0, 1.5, -1.0])), optim.sgd(0.1)
    p = nnp.asarray(np.ones(3) / 3)
    state = optimizer.init(p)
    for _ in range(100):
        updates, state = optimizer.update(p - target, state, p)
        p = optim.projection_simplex(optim.apply_updates(p, updates))
    assert np.allclose(p, [0.75, 0.25, 0.0], atol=1e-4)


def test_16_bit_leaves_keep_their_dtype() -> None:
    y = optim.projection_simplex({"a": nnp.ones(4, dtype="bfloat16"), "b": nnp.ones(4)})
    assert str(y["a"].dtype) == "bfloat16" and y["b"].dtype == np.float32 and np.allclose(y["b"], 0.125)


def test_mistakes_are_named() -> None:
    with pytest.raises(DTypeError, match="complex numbers have no order(.|\n)*Fix:"):
        optim.projection_simplex(np.ones(2, complex))
    with pytest.raises(ArgumentError, match="no floating-point elements(.|\n)*Fix:"):
        optim.projection_l1_ball({"n": np.arange(3)})
    with pytest.raises(ArgumentError, match="scale is 0; it must be above 0(.|\n)*Fix:"):
        optim.projection_simplex(np.ones(2), 0)
    with pytest.raises(ShapeError, match="x and a differ in shape"):
        optim.projection_hyperplane(np.ones(2), np.ones(3), 1.0)


def record() -> None:
    import jax  # noqa: PLC0415  an optional peer
    import optax  # noqa: PLC0415  an optional peer

    with jax.enable_x64(True):
        np.savez_compressed(RECORDED, **{name: flat(case(optax.projections)) for name, case in CASES.items()})


if __name__ == "__main__":
    record()
