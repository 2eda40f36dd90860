"""Muon of arrays that are no matrices, its preconditionings and coefficients, beside Optax's recorded steps.

`python -m tests.unit.optim.test_muon` records them anew, with Optax and JAX installed (recorded with Optax 0.2.8).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ShapeError, TreeError

RECORDED = Path(__file__).with_name("recorded_muon.npz")
SETTINGS: dict[str, dict[str, Any]] = {
    "frobenius": {}, "aol": {"preconditioning": "aol"}, "schatten": {"preconditioning": "schatten"},
    "spectral": {"preconditioning": "spectral"}, "dion": {"ns_coeffs": "dion"}, "rms": {"consistent_rms": 0.2},
}  # fmt: skip


def trajectory(make: Any, numbers: Any, apply: Any, asarray: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The parameters after three steps: a kernel of a convolution, a matrix, a vector."""
    rng = np.random.default_rng(0)
    shapes = {"k": (4, 3, 2, 2), "m": (3, 5), "b": (4,)}
    params = {name: asarray(rng.standard_normal(shape)) for name, shape in shapes.items()}
    which = {"k": numbers((1, 2, 3), 0), "m": numbers(), "b": None}
    optimizer = make(0.1, muon_weight_dimension_numbers=which, **settings)
    state = optimizer.init(params)
    for _ in range(3):
        gradients = {name: asarray(rng.standard_normal(shape)) for name, shape in shapes.items()}
        updates, state = optimizer.update(gradients, state, params)
        params = apply(params, updates)
    return params


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_optax(name: str) -> None:
    found = trajectory(optim.muon, optim.MuonDimensionNumbers, optim.apply_updates, nnp.asarray, SETTINGS[name])
    with np.load(RECORDED) as recorded:
        for key, x in found.items():
            np.testing.assert_allclose(np.asarray(x), recorded[f"{name}.{key}"], rtol=1e-12, atol=1e-13)


def test_a_batch_of_matrices_is_made_orthogonal_one_by_one() -> None:
    x = nnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 5)))
    found = optim.orthogonalize_via_newton_schulz(x, dimension_numbers=optim.MuonDimensionNumbers(2, 1))
    for one, all_ in zip(x, found, strict=True):
        np.testing.assert_allclose(
            np.asarray(optim.orthogonalize_via_newton_schulz(one.T)).T, np.asarray(all_), rtol=1e-10
        )


def test_a_function_chooses_the_arrays() -> None:
    kernels = lambda params: nnc.tree.map(
        lambda p: optim.MuonDimensionNumbers((1, 2, 3), 0) if p.ndim == 4 else None, params
    )
    params = {"k": nnp.ones((4, 3, 2, 2)), "b": nnp.ones(4)}
    optimizer, others = (
        optim.muon(0.1, muon_weight_dimension_numbers=kernels),
        optim.adamw(0.1, nesterov=True, weight_decay=0.0),
    )
    step = nnc.compile(lambda params, state: optimizer.update(params, state, params))
    updates, _ = step(params, optimizer.init(params))
    expected, _ = others.update(params["b"], others.init(params["b"]), params["b"])
    np.testing.assert_allclose(np.asarray(updates["b"]), np.asarray(expected), rtol=1e-5)
    assert np.linalg.matrix_rank(np.asarray(updates["k"]).reshape(4, -1)) == 1


def test_mistakes_are_named() -> None:
    x = nnp.ones((2, 3, 4))
    with pytest.raises(ShapeError, match="pass dimension_numbers"):
        optim.orthogonalize_via_newton_schulz(x)
    with pytest.raises(ArgumentError, match="names an axis twice"):
        optim.orthogonalize_via_newton_schulz(x, dimension_numbers=optim.MuonDimensionNumbers((0, 1), -2))
    with pytest.raises(ArgumentError, match="is 'max'"):
        optim.orthogonalize_via_newton_schulz(x[0], preconditioning="max")
    with pytest.raises(ArgumentError, match="is 'quick'"):
        optim.muon(0.1, ns_coeffs="quick")
    with pytest.raises(TreeError, match="muon_weight_dimension_numbers"):
        optim.muon(0.1, muon_weight_dimension_numbers={"w": None}).init({"v": nnp.ones((2, 2))})


def main() -> None:
    """Records Optax's steps."""
    import jax  # noqa: PLC0415
    import optax  # noqa: PLC0415

    jax.config.update("jax_enable_x64", True)
    found = {}
    for name, settings in SETTINGS.items():
        muon = optax.contrib.muon
        steps = trajectory(muon, optax.contrib.MuonDimensionNumbers, optax.apply_updates, jax.numpy.asarray, settings)
        found.update({f"{name}.{key}": np.asarray(x) for key, x in steps.items()})
    np.savez(RECORDED, **found)


if __name__ == "__main__":
    main()
