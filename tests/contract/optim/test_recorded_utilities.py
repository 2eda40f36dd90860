"""Microbatches, perturbations, second derivatives, assignments, units and stateful schedules beside Optax's stored results.

python -m tests.contract.optim.test_recorded_utilities        stores them in recorded_utilities.npz: Optax must be installed
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError

RECORDED = Path(__file__).with_name("recorded_utilities.npz")
_RNG = np.random.default_rng(11)
X, Y = _RNG.normal(size=(6, 3)).astype(np.float32), _RNG.normal(size=6).astype(np.float32)
P = {"b": np.float32(0.2) * np.ones(1, np.float32), "w": _RNG.normal(size=3).astype(np.float32)}
V = _RNG.normal(size=4).astype(np.float32)
UNITS = [_RNG.normal(size=shape).astype(np.float32) for shape in ((4,), (3, 2), (2, 3, 2), (2, 2, 3, 2))]
COSTS = {"square": _RNG.random((6, 6)), "wide": _RNG.random((3, 7)), "tall": _RNG.random((8, 4))}


def loss(p: Any, x: Any, y: Any) -> Any:
    error = (x @ p["w"] + p["b"]) - y
    return ((error**2) * (1 + error)).mean()


class Falling:
    """A rate that halves whenever the loss rises."""

    def init(self) -> Any:
        return {"last": np.float32(10), "rate": np.float32(0.5)}

    def update(self, state: Any, *, value: Any, **extra: Any) -> Any:
        return {"last": value, "rate": state["rate"] * (1 - 0.5 * (value > state["last"]))}

    def __call__(self, state: Any, **extra: Any) -> Any:
        return state["rate"]


def rates(o: Any, asarray: Any) -> list[Any]:
    """The steps of a chain with a rate that depends on the losses."""
    optimizer = o.inject_hyperparams(o.sgd)(learning_rate=Falling())
    params = asarray(np.ones(2, np.float32))
    state, found = optimizer.init(params), []
    for value in (3.0, 4.0, 2.0, 2.5, 1.0):
        updates, state = optimizer.update(params, state, params, value=asarray(np.float32(value)))
        found.append(updates)
    return found


def micro(o: Any, **options: Any) -> Any:
    kind = o.microbatching.AccumulationType
    return o.microbatching.micro_grad(
        loss, batch_argnums=(1, 2), accumulator=(kind.MEAN, kind.SUM), microbatch_size=2,
        transform_fn=lambda g: (g, {"b": g["b"] ** 2, "w": g["w"] ** 2}), metrics_fn=lambda g: g["w"].sum(), **options,
    )  # fmt: skip


def accumulator(o: Any, np: Any) -> Any:
    """The maximum of all parts' values times the number of the part."""

    def each(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_tree(*values: Any) -> Any:
            first, *others = values
            if isinstance(first, tuple):
                return tuple(of_tree(*xs) for xs in zip(*values, strict=True))
            return function(first, *others)

        return of_tree

    return o.microbatching.Accumulator(
        init=each(lambda spec: np.full(spec.shape, -np.inf, spec.dtype)),
        update=lambda carry, value, i: each(lambda c, v: np.maximum(c, v * (i + 1)))(carry, value),
        finalize=each(lambda carry: carry / 2),
        aggregate=each(lambda values: values.max(0)),
    )


def step_function(np: Any) -> Callable[[Any], Any]:
    return lambda p: (p["w"] > 0).sum() * 1.0 + (p["b"] > 0.1).sum()


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {  # from optim, the namespace of arrays, and the transforms
    "microbatch": lambda o, np, t: o.microbatch(loss, (1, 2), 2)(P, X, Y),
    "microbatch concat": lambda o, np, t: o.microbatch(
        lambda x: (x * 2, x.sum()),
        0,
        3,
        (o.microbatching.AccumulationType.CONCAT, o.microbatching.AccumulationType.SUM),
    )(X),
    "microbatch early": lambda o, np, t: o.microbatch(
        lambda x: x.mean(), 0, 2, o.microbatching.AccumulationType.RUNNING_MEAN, in_axes=0, num_real_microbatches=2
    )(X),
    "microbatch axis": lambda o, np, t: o.microbatch(lambda *, x: x.sum(1), (), 2, argnames="x", in_axes=1)(x=X.T),
    "microbatch by objects": lambda o, np, t: o.microbatch(
        lambda x: {"all": (x.max(0), x.min(0)), "sum": x.sum(), "each": x},
        0,
        2,
        {
            "all": accumulator(o, np),
            "sum": o.microbatching.AccumulationType.SUM,
            "each": o.microbatching.AccumulationType.CONCAT,
        },
        num_real_microbatches=2,
    )(X),
    "micro_grad by objects": lambda o, np, t: o.microbatching.micro_grad(
        loss, batch_argnums=(1, 2), microbatch_size=3, accumulator={"b": accumulator(o, np), "w": accumulator(o, np)}
    )(P, X, Y),
    "reshape_batch_axis": lambda o, np, t: o.microbatching.reshape_batch_axis({"x": X, "t": X + 1}, 2),
    "reshape_batch_axis of columns": lambda o, np, t: o.microbatching.reshape_batch_axis(np.asarray(X.T), 3, axis=1),
    "micro_grad": lambda o, np, t: micro(o)(P, X, Y),
    "micro_grad of two parts": lambda o, np, t: micro(o, num_real_microbatches=2)(P, X, Y),
    "hvp": lambda o, np, t: o.second_order.hvp(loss, V, P, X, Y),
    "hessian_diag": lambda o, np, t: o.second_order.hessian_diag(loss, P, X, Y),
    "fisher_diag": lambda o, np, t: o.second_order.fisher_diag(loss, P, X, Y),
    "unitwise_norm": lambda o, np, t: [o.transforms.unitwise_norm(x) for x in UNITS],
    "unitwise_norm of axes": lambda o, np, t: o.transforms.unitwise_norm(UNITS[2], axis=(0, 2)),
    "unitwise_clip": lambda o, np, t: o.transforms.unitwise_clip(*(abs(UNITS[1]) * s for s in (1.0, 0.7)), UNITS[1]),
    "stateful schedule": lambda o, np, t: rates(o, np.asarray),
    **{
        f"perturbed {name}": lambda o, np, t, noise=noise, base=base: t.value_and_grad(
            o.perturbations.make_perturbed_fun(
                step_function(np), 20, 0.5, getattr(o.perturbations, noise)(), use_baseline=base
            ),
            argnums=1,
        )(t.random.key(3), t.tree.map(np.asarray, P))
        for name, noise, base in (("by Gumbel", "Gumbel", True), ("by Normal", "Normal", False))
    },
}


class Transforms:
    """nnc.optim with `transforms` in it, as Optax has them."""

    transforms = optim

    def __getattr__(self, name: str) -> Any:
        return getattr(optim, name)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_optax(name: str) -> None:
    with np.load(RECORDED) as file:
        wanted = [file[f"{name} {i}"] for i in range(sum(key.rpartition(" ")[0] == name for key in file))]
    found = nnc.tree.leaves(CASES[name](Transforms(), nnp, nnc))
    for x, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", COSTS)
def test_assignments_are_those_of_scipy(name: str) -> None:
    scipy = pytest.importorskip("scipy.optimize")
    costs = COSTS[name]
    for x in (costs, np.round(costs * 4), -costs.astype(np.float32)):  # with equal costs the sums alone are the same
        rows, columns = nnc.compile(optim.assignment.hungarian_algorithm)(x)
        want_rows, want_columns = scipy.linear_sum_assignment(x)
        assert np.isclose(x[rows, columns].sum(), x[want_rows, want_columns].sum(), rtol=1e-6)
        assert len(set(rows.tolist())) == len(set(columns.tolist())) == min(x.shape)
    np.testing.assert_array_equal(optim.assignment.hungarian_algorithm(costs), scipy.linear_sum_assignment(costs))


def test_assignments_are_batched_and_their_costs_have_gradients() -> None:
    costs = np.stack([COSTS["square"], COSTS["square"].T])
    rows, columns = nnc.vmap(optim.assignment.hungarian_algorithm)(costs)
    for i in range(2):
        np.testing.assert_array_equal(columns[i], optim.assignment.hungarian_algorithm(costs[i])[1])

    def total(c: Any) -> Any:
        rows, columns = optim.assignment.hungarian_algorithm(c)
        return c[rows, columns].sum()

    gradient = np.asarray(nnc.grad(total)(costs[0]))
    assert gradient.sum() == 6 and (gradient[rows[0], columns[0]] == 1).all()
    assert optim.assignment.hungarian_algorithm(np.zeros((0, 3)))[0].shape == (0,)


def test_microbatches_have_gradients_and_need_less_memory() -> None:
    small = optim.microbatch(loss, (1, 2), 2, optim.microbatching.AccumulationType.MEAN)
    for got, want in zip(*(nnc.tree.leaves(nnc.grad(f)(P, X, Y)) for f in (small, loss)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    big = np.ones((64, 256), np.float32)

    def deep(x: Any) -> Any:
        return nnp.sum(nnp.cumsum(nnp.sin(x) @ x.T, axis=0) ** 2)

    plans = [nnc.compile(f).lower(big).compile().memory_plan.peak for f in (optim.microbatch(deep, 0, 8), deep)]
    assert plans[0] < plans[1]


def test_mistakes_in_microbatches_and_perturbations_are_told() -> None:
    with pytest.raises(ShapeError, match="microbatch_size 4 does not divide the 6 rows"):
        optim.microbatch(loss, (1, 2), 4)(P, X, Y)
    with pytest.raises(ShapeError, match=r"the batch axes have lengths \[4, 6\]"):
        optim.microbatch(loss, (1, 2), 2)(P, X, Y[:4])
    with pytest.raises(DTypeError, match="the mean of a result of int64"):
        optim.microbatch(lambda x: x.sum(), 0, 2, optim.microbatching.AccumulationType.MEAN)(np.arange(4))
    with pytest.raises(ArgumentTypeError, match="accumulator has 'sum', of type str"):
        optim.microbatch(loss, (1, 2), 2, "sum")(P, X, Y)
    with pytest.raises(TreeError, match="does not fit the tree"):
        optim.microbatch(loss, (1, 2), 2, {"a": optim.microbatching.AccumulationType.SUM})(P, X, Y)
    with pytest.raises(ShapeError, match="microbatch_size 4 does not divide the 6 rows"):
        optim.microbatching.reshape_batch_axis(X, 4)
    with pytest.raises(ArgumentError, match="microbatch_size is 0"):
        optim.microbatch(loss, 1, 0)
    with pytest.raises(ArgumentError, match="out_axes is 1"):
        optim.microbatching.micro_vmap(lambda x: x, out_axes=1)
    with pytest.raises(ArgumentError, match="num_samples is 0"):
        optim.perturbations.make_perturbed_fun(nnp.sum, 0)
    with pytest.raises(ShapeError, match="cost_matrix has 1 axes"):
        optim.assignment.hungarian_algorithm(V)
    with pytest.raises(ShapeError, match="unitwise_clip: the shapes differ"):
        optim.unitwise_clip(V, V[:2], V)


if __name__ == "__main__":
    import jax
    import optax
    import optax.microbatching

    warnings.simplefilter("ignore")
    jax.config.update("jax_threefry_partitionable", True)
    made = {name: jax.tree.leaves(case(optax, jax.numpy, jax)) for name, case in CASES.items()}
    np.savez_compressed(
        RECORDED, **{f"{name} {i}": np.asarray(x) for name, xs in made.items() for i, x in enumerate(xs)}
    )
