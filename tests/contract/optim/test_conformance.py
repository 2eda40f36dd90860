"""Properties of every optimizer of the table, besides its formula: files, vmap, purity, zeros, complex numbers, frozen leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from tests.contract.optim.table import ROWS, Row

every_optimizer = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def start() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    params = {"w": nnp.asarray(rng.normal(size=(2, 4))), "layers": [nnp.asarray(rng.normal(size=3)), None]}
    return params, nnc.tree.map(lambda p: nnp.asarray(rng.normal(size=p.shape)), params)


def run(optimizer: optim.GradientTransformation, params: Any, grads: Any, state: Any, steps: int) -> tuple[Any, Any]:
    for _ in range(steps):
        updates, state = optimizer.update(grads, state, params)
        params = optim.apply_updates(params, updates)
    return params, state


def same_bits(a: Any, b: Any) -> bool:
    pairs = zip(nnc.tree.leaves(a), nnc.tree.leaves(b), strict=True)
    return nnc.tree.structure(a) == nnc.tree.structure(b) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs
    )


@every_optimizer
def test_training_goes_on_from_a_file_as_if_it_had_not_stopped(row: Row, tmp_path: Path) -> None:
    optimizer = row.make(optim.linear_schedule(0.1, 0.01, 5))
    params, grads = start()
    middle = run(optimizer, params, grads, optimizer.init(params), 2)
    nnc.io.save(tmp_path / "x", middle)
    restored = nnc.io.load(tmp_path / "x", like=(params, optimizer.init(params)))
    assert same_bits(restored, middle)
    assert same_bits(
        run(optimizer, *[restored[0], grads, restored[1]], 2), run(optimizer, middle[0], grads, middle[1], 2)
    )


@every_optimizer
def test_an_update_is_pure(row: Row) -> None:
    optimizer = row.make(0.1)
    params, grads = start()
    state = optimizer.init(params)
    before = [np.asarray(x).copy() for x in nnc.tree.leaves((params, grads, state))]
    first, second = optimizer.update(grads, state, params), optimizer.update(grads, state, params)
    assert same_bits(first, second)
    assert all(np.array_equal(x, y) for x, y in zip(before, nnc.tree.leaves((params, grads, state)), strict=True))


@every_optimizer
def test_rates_may_be_mapped(row: Row) -> None:
    params, grads = start()

    def after(rate: Any) -> Any:
        optimizer = row.make(rate)
        return run(optimizer, params, grads, optimizer.init(params), 2)[0]

    rates = np.array([0.3, 0.03])
    mapped = nnc.vmap(after)(nnp.asarray(rates))
    for i, rate in enumerate(rates):
        for x, y in zip(nnc.tree.leaves(mapped), nnc.tree.leaves(after(rate)), strict=True):
            assert np.allclose(x[i], y, rtol=1e-6, atol=1e-9)


@every_optimizer
def test_zero_gradients_and_zero_parameters_give_finite_steps(row: Row) -> None:
    optimizer = row.make(0.1)
    params, _ = start()
    for at in (params, nnc.tree.map(nnp.zeros_like, params)):
        moved, state = run(optimizer, at, nnc.tree.map(nnp.zeros_like, params), optimizer.init(at), 3)
        assert bool(optim.all_finite((moved, state)))


@every_optimizer
@pytest.mark.parametrize("empty", [{}, (), {"a": None, "name": "x"}, {"n": np.arange(3)}], ids=repr)
def test_trees_without_parameters_pass(row: Row, empty: Any) -> None:
    optimizer = row.make(0.1)
    updates, _ = optimizer.update(empty, optimizer.init(empty), empty)
    assert nnc.tree.structure(optim.apply_updates(empty, updates)) == nnc.tree.structure(empty)


@every_optimizer
def test_arrays_without_elements_and_scalars_are_parameters(row: Row) -> None:
    params = {"none": nnp.zeros((0, 3)), "one": nnp.asarray(2.0), "vector": nnp.ones(4)}
    optimizer = row.make(0.1)
    moved, _ = run(optimizer, params, nnc.tree.map(nnp.ones_like, params), optimizer.init(params), 2)
    assert moved["none"].shape == (0, 3) and moved["one"].shape == () and bool(optim.all_finite(moved))
    assert float(moved["one"]) < 2.0


@every_optimizer
def test_complex_parameters_keep_their_dtype_and_move_against_the_gradient(row: Row) -> None:
    optimizer = row.make(row.rate)
    p = nnp.asarray(np.array([1 + 2j, -2 - 1j, 0.5j], np.complex64))
    state = optimizer.init(p)
    for _ in range(row.waits):
        state = optimizer.update(p, state, p)[1]
    updates, after = optimizer.update(p, state, p)
    assert updates.dtype == np.complex64 and nnc.tree.structure(after) == nnc.tree.structure(state)
    assert [x.spec for x in nnc.tree.leaves(after)] == [x.spec for x in nnc.tree.leaves(state)]
    assert np.all((np.conj(np.asarray(p)) * np.asarray(updates)).real < 0)


@every_optimizer
def test_real_parameters_stored_as_complex_take_the_same_steps(row: Row) -> None:
    rng = np.random.default_rng(2)
    p, g = rng.normal(size=3), rng.normal(size=3)
    optimizer = row.make(0.1)
    real, _ = run(optimizer, nnp.asarray(p), nnp.asarray(g), optimizer.init(nnp.asarray(p)), 3)
    whole, g = nnp.asarray(p.astype(complex)), nnp.asarray(g.astype(complex))
    moved, _ = run(optimizer, whole, g, optimizer.init(whole), 3)
    assert np.allclose(real, moved, rtol=1e-9)


@every_optimizer
def test_frozen_leaves_stay(row: Row) -> None:
    optimizer = optim.multi_transform(
        {"train": row.make(0.1), "frozen": optim.set_to_zero()}, {"w": "train", "layers": "frozen"}
    )
    params, grads = start()
    moved, state = run(optimizer, params, grads, optimizer.init(params), 2)
    assert np.array_equal(moved["layers"][0], params["layers"][0]) and not np.array_equal(moved["w"], params["w"])
    assert not any(np.shape(x)[:1] == (3,) for x in nnc.tree.leaves(state))  # nothing is kept for them


@every_optimizer
def test_a_misspelt_argument_of_update_is_refused(row: Row) -> None:
    optimizer = row.make(0.1)
    params, grads = start()
    with pytest.raises(TypeError, match="param"):
        optimizer.update(grads, optimizer.init(params), param=params)


@every_optimizer
def test_arguments_that_an_optimizer_does_not_read_are_ignored(row: Row) -> None:
    optimizer = row.make(0.1)
    params, grads = start()
    state = optimizer.init(params)
    extra = {"value": nnp.asarray(1.0), "grad": grads, "value_fn": nnp.sum, "step": 3}
    assert same_bits(optimizer.update(grads, state, params, **extra), optimizer.update(grads, state, params))
