"""Noise of gradients: its spread, its keys, and the gradients of single examples that it makes private."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentTypeError, ShapeError


def test_noise_has_the_given_variance_and_fades() -> None:
    noisy = optim.add_noise(0.25, 1.0, nnc.random.key(0))
    state, zeros = noisy.init(None), {"w": nnp.zeros((200, 100)), "b": nnp.zeros(20000)}
    draws = []
    for t in range(1, 5):
        updates, state = noisy.update(zeros, state)
        draws.append(updates)
        for x in nnc.tree.leaves(updates):
            assert np.isclose(np.asarray(x).std(), (0.25 / t) ** 0.5, rtol=0.03) and abs(np.asarray(x).mean()) < 0.02
    flat = [np.ravel(np.asarray(x)) for x in (draws[0]["w"], draws[0]["b"], draws[1]["w"], draws[1]["b"])]
    assert np.all(np.abs(np.corrcoef(flat) - np.eye(4)) < 0.03)


def test_complex_noise_has_the_same_variance_in_both_parts_together() -> None:
    noisy = optim.add_noise(1.0, 0.0, 7)
    z = np.asarray(noisy.update(nnp.asarray(np.zeros(20000, np.complex64)), noisy.init(None))[0])
    assert np.isclose(np.mean(np.abs(z) ** 2), 1.0, rtol=0.05) and np.isclose(z.real.std(), z.imag.std(), rtol=0.05)


def test_an_int_is_the_seed_of_a_key() -> None:
    a, b = (optim.noisy_sgd(0.1, key=key) for key in (3, nnc.random.key(3)))
    g = nnp.zeros(5)
    assert np.array_equal(a.update(g, a.init(g))[0], b.update(g, b.init(g))[0])


def gradients() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(6, 2, 3)), "b": rng.normal(size=(6, 4)) * 0.1}


def test_the_norm_of_each_example_is_clipped_over_all_leaves() -> None:
    grads = gradients()
    norms = np.sqrt((grads["w"] ** 2).sum((1, 2)) + (grads["b"] ** 2).sum(1))
    limit = float(np.median(norms))
    total, count = optim.per_example_global_norm_clip({k: nnp.asarray(x) for k, x in grads.items()}, limit)
    shares = np.minimum(1, limit / norms)
    assert int(count) == 3
    assert np.allclose(total["w"], np.einsum("e,eij->ij", shares, grads["w"]))
    assert np.allclose(total["b"], shares @ grads["b"])


@pytest.mark.parametrize("uniform", [True, False])
def test_the_norm_of_each_example_is_clipped_in_each_leaf(uniform: bool) -> None:
    grads = gradients()
    total, counts = optim.per_example_layer_norm_clip({k: nnp.asarray(x) for k, x in grads.items()}, 2.0, uniform)
    for name, part in (("w", 0.5 if uniform else 0.6), ("b", 0.5 if uniform else 0.4)):
        norms = np.linalg.norm(grads[name].reshape(6, -1), axis=1)
        shares = np.minimum(1, 2.0 * part**0.5 / norms)
        assert (
            np.allclose(total[name], np.tensordot(shares, grads[name], 1)) and int(counts[name]) == (shares < 1).sum()
        )


def test_a_zero_gradient_is_not_divided_by() -> None:
    total, count = optim.per_example_global_norm_clip(nnp.zeros((3, 2)), 1.0)
    assert np.array_equal(total, [0, 0]) and int(count) == 0


def test_private_descent_is_the_mean_of_clipped_examples_plus_noise_of_its_multiplier() -> None:
    grads = {"w": nnp.zeros((4, 5000))}
    optimizer = optim.dpsgd(1.0, l2_norm_clip=2.0, noise_multiplier=3.0, seed=0, momentum=0.5)
    updates, state = optimizer.update(grads, optimizer.init({"w": nnp.zeros(5000)}))
    assert updates["w"].shape == (5000,) and np.isclose(np.asarray(updates["w"]).std(), 2.0 * 3.0 / 4, rtol=0.05)
    again, _ = optimizer.update(grads, state)
    assert abs(np.corrcoef(again["w"] - 0.5 * updates["w"], updates["w"])[0, 1]) < 0.05


def test_mistakes_are_named() -> None:
    for call in (
        lambda: optim.noisy_sgd(0.1),
        lambda: optim.add_noise(0.1, 0.5, None),
        lambda: optim.dpsgd(0.1, 1.0, 1.0, "0"),
    ):
        with pytest.raises(ArgumentTypeError, match=r"key is(.|\n)*Fix: pass key=nnc.random.key\(0\)"):
            call()
    with pytest.raises(
        ShapeError, match="axis 0 of its leaves must count the examples(.|\n)*Fix: give gradients of each"
    ):
        optim.per_example_global_norm_clip([nnp.ones((2, 3)), nnp.ones((3, 3))], 1.0)
