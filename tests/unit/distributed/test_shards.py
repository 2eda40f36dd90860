"""Shards: steps that compute the same bits on any number of processes (`on_processes.py` compares them)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.control import isolated
from nnc.distributed import data_parallel
from nnc.graph import bind, spec_of
from nnc.nn import BatchNorm, Linear
from nnc.trace.core.axes import collectives_over
from nnc.trace.core.named import stage_named
from nnc.trace.core.staging import stage
from tests.unit.distributed.test_parallel import MESH, X, Y, close, network, normalised_step, training_step, wide

RNG = np.random.default_rng(0)
GRAPHS: dict[str, Any] = {
    "a multiply-add": lambda x, y: (x * y + 1.5, x),
    "a product and its epilogue": lambda x, y: (nnp.tanh(x @ y.T + 0.5), x @ y.T),
    "sums": lambda x, y: ((x * y).sum(0), nnp.exp(x).mean()),
    "a loop": lambda x, y: nnc.fori_loop(0, 3, lambda i, c: (c[0] * c[1] + i, c[1] - c[0] / 3), (x, y)),
    "a branch": lambda x, y: (nnc.cond(x.sum() > 0, lambda: x * y, lambda: x - y), y),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_an_isolated_graph_computes_the_same_bits_in_every_program(name: str, dtype: str) -> None:
    x, y = (nnp.asarray(RNG.standard_normal((6, 9))).astype(dtype) for _ in range(2))
    graph = stage(lambda *xs: list(GRAPHS[name](*xs)), [spec_of(x), spec_of(y)]).graph
    apart = lambda x, y: bind(isolated, [x, y], {}, (graph,))

    def around(x: Any, y: Any) -> Any:
        first, second = apart(x * 2, y + 1)
        return first, second, nnp.sum(first * 3 + second.sum()), apart(first.sum() * x, y)

    alone = nnc.compile(apart)
    first, second, total, rest = nnc.compile(around)(x, y)
    for got, want in ((first, 0), (second, 1)):
        assert np.asarray(got).tobytes() == np.asarray(alone(x * 2, y + 1)[want]).tobytes()
    for got, want in zip(rest, alone((first.sum() * x).astype(x.dtype), y), strict=True):
        np.testing.assert_allclose(np.asarray(got, "f8"), np.asarray(want, "f8"), rtol=2e-2, atol=2e-2)
    assert np.isfinite(float(total))


def generated(rng: np.random.Generator) -> Any:
    """A function of two matrices, (6, 9), that adds, multiplies, reduces and joins them at random."""
    steps = [(int(rng.integers(9)), int(rng.integers(99)), int(rng.integers(99))) for _ in range(8)]

    def run(x: Any, y: Any) -> list[Any]:
        known = [x, y]
        for kind, i, j in steps:
            a, b = known[i % len(known)], known[j % len(known)]
            known.append(
                [
                    lambda a, b: a * b + 0.5, lambda a, b: a - b / 3, lambda a, b: nnp.tanh(a) + b,
                    lambda a, b: nnp.exp(-abs(a)) * b, lambda a, b: a - b.mean(1, keepdims=True),
                    lambda a, b: a * b.sum(), lambda a, b: (a @ b.T) @ a / 50, lambda a, b: nnp.where(a > b, a, b.max(0)),
                    lambda a, b: nnp.concatenate([a[:3], b[3:]]),
                ][kind](a, b)
            )  # fmt: skip
        return known[-3:]

    return run


@pytest.mark.parametrize("seed", range(12))
def test_generated_isolated_graphs_compute_the_same_bits_in_every_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (nnp.asarray(rng.standard_normal((6, 9))).astype(("float32", "bfloat16")[seed % 2]) for _ in range(2))
    graph = stage(generated(rng), [spec_of(x), spec_of(y)]).graph
    apart = lambda x, y: bind(isolated, [x, y], {}, (graph,))

    def around(x: Any, y: Any) -> Any:
        once = apart(x * 2, y + 1)
        again = apart(x * 2, y - 1)
        return once, again, sum((a * 3 + b.sum()).sum() for a, b in zip(once, again, strict=True))

    once, again, _ = nnc.compile(around)(x, y)
    alone = nnc.compile(apart)
    for found, wanted in ((once, alone(x * 2, y + 1)), (again, alone(x * 2, y - 1))):
        assert [np.asarray(a).tobytes() for a in found] == [np.asarray(a).tobytes() for a in wanted]


def test_an_isolated_graph_is_transparent_to_transforms() -> None:
    graph = stage(lambda x, y: [nnp.sin(x) * y], [spec_of(np.zeros(())), spec_of(np.zeros(()))]).graph
    apart: Any = lambda x, y: bind(isolated, [x, y], {}, (graph,))[0]
    plain: Any = lambda x, y: nnp.sin(x) * y
    a, b = np.asarray(0.7), np.asarray(-1.3)
    for wrap in (lambda f: f, nnc.compile):
        close(wrap(nnc.grad(apart, argnums=(0, 1)))(a, b), nnc.grad(plain, argnums=(0, 1))(a, b))
        close(wrap(nnc.hessian(apart))(a, b), nnc.hessian(plain)(a, b))
        close(wrap(nnc.vmap(apart, in_axes=(0, None)))(X[0], b), plain(nnp.asarray(X[0]), b))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("shards", [1, 4])
def test_training_on_shards_is_training_on_the_whole_batch(shards: int, compiled: bool) -> None:
    optimizer = nnc.optim.chain(nnc.optim.clip_by_global_norm(0.5), nnc.optim.adam(1e-2))
    step, model = training_step(optimizer), network()
    wrap: Any = nnc.compile if compiled else lambda f: f
    one, many = wrap(step), wrap(data_parallel(step, batch_argnums=(2, 3), shards=shards))
    a = b = (model, optimizer.init(model))
    for _ in range(3):
        found, expected = many(*a, X, Y), one(*b, X, Y)
        close(found, expected)
        a, b = found[:2], expected[:2]


def test_a_sharded_optimizer_keeps_its_whole_state() -> None:
    optimizer = nnc.optim.adam(1e-2)
    sharded, model = nnc.optim.sharded(optimizer, "data"), network()
    a, b = (model, sharded.init(model)), (model, optimizer.init(model))
    step = data_parallel(training_step(sharded), batch_argnums=(2, 3), shards=4)
    for _ in range(2):
        found, expected = step(*a, X, Y), training_step(optimizer)(*b, X, Y)
        close((found[0], found[2:]), (expected[0], expected[2:]))
        a, b = found[:2], expected[:2]


def collectives(w: Any, x: Any) -> Any:
    """All collectives, one behind the other, with values that are the same everywhere between them."""
    total = nnc.psum(x * w[0], "data")
    y = x * nnp.tanh(total / 9) + nnc.axis_index("data")
    most, least = nnc.pmax(y, "data"), nnc.pmin(y > 1, "data")
    every = nnc.all_gather(y, "data", tiled=True)
    moved = nnc.ppermute(y, "data", [(0, 1), (1, 2), (3, 0)])
    scattered = nnc.psum_scatter(nnp.ones((4, 1)) * y.sum(), "data")
    swapped = nnc.all_to_all(nnp.arange(4.0) * y.sum(), "data", 0, 0)
    count = nnc.psum(nnp.asarray(len(x)) + nnc.axis_index("data"), "data")
    means = {"every": every.sum(), "moved": moved, "scattered": scattered, "swapped": swapped[1]}
    return total, most, least, count, nnc.tree.map(lambda v: nnc.pmean(v * y.sum(), "data"), means)


def test_collectives_join_shards_as_places_of_a_mesh() -> None:
    w, x = nnp.asarray(X[0]), X[:4]
    for wrap in (lambda f: f, nnc.compile):
        close(
            wrap(data_parallel(collectives, batch_argnums=1, shards=4))(w, x),
            data_parallel(collectives, batch_argnums=1, mesh=MESH)(w, x),
        )


def test_batch_norm_has_the_statistics_of_the_whole_batch() -> None:
    linear = Linear(4, 3, key=nnc.random.key(1))
    spread = wide([linear, BatchNorm(3, axis_name="data")])
    found = data_parallel(normalised_step, batch_argnums=(1, 2), shards=4)(spread, X, Y)
    close(found, normalised_step(wide([linear, BatchNorm(3)]), X, Y))


def test_derivatives_of_the_whole_step_are_those_of_one_process() -> None:
    def step(w: Any, x: Any) -> Any:
        loop = lambda w: nnc.fori_loop(0, 3, lambda i, c: nnp.tanh(c + x @ w), np.zeros(len(x)))
        return w - 0.1 * nnc.grad(lambda w: nnp.mean(loop(w) ** 2))(w)

    many = data_parallel(step, batch_argnums=1, shards=4)
    w = nnp.asarray(X[0])
    close(nnc.jacrev(lambda w: many(w, X))(w), nnc.jacrev(lambda w: step(w, X))(w))
    rows = np.stack([X[0], X[1]])
    close(nnc.vmap(lambda w: many(w, X))(rows), nnc.vmap(lambda w: step(w, X))(rows))


def test_collectives_over_other_axes_join_their_own_places() -> None:
    step = lambda w, x: nnc.grad(lambda w: nnp.mean(x @ w) * nnc.psum(w.sum(), "j"))(w)
    rows = np.stack([X[0], X[1]])
    found, wanted = (
        nnc.vmap(lambda w, f=f: f(w, X), axis_name="j")(rows)
        for f in (data_parallel(step, batch_argnums=1, shards=4), data_parallel(step, batch_argnums=1, mesh=MESH))
    )
    close(found, wanted)


@pytest.mark.parametrize("wrap", [nnc.checkpoint, nnc.compile, nnc.custom_jvp])
def test_calls_join_shards_within(wrap: Any) -> None:
    part = wrap(lambda h: nnp.tanh(h - nnc.pmean(h.mean(0), "data")))
    if wrap is nnc.custom_jvp:
        part.defjvp(lambda p, t: nnc.jvp(lambda h: nnp.tanh(h - nnc.pmean(h.mean(0), "data")), p, t))
    step: Any = lambda w, x: nnc.value_and_grad(lambda w: nnp.mean(part(x * w) ** 3))(w)
    for run in (step, nnc.compile(step)):
        close(
            data_parallel(run, batch_argnums=1, shards=4)(nnp.asarray(X[0]), X),
            data_parallel(run, batch_argnums=1, mesh=MESH)(nnp.asarray(X[0]), X),
        )


def test_gradients_of_loops_are_joined_once_behind_them() -> None:
    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            cell = lambda h, row: (nnp.tanh(h @ w["a"] + row @ w["b"] + w["c"]), None)
            return nnp.mean(nnc.scan(cell, np.zeros((len(x), 3)), nnp.swapaxes(x, 0, 1))[0] ** 2)

        return nnc.value_and_grad(loss)(w)

    w = {"a": nnp.asarray(RNG.standard_normal((3, 3))), "b": nnp.asarray(Y[:2]), "c": nnp.asarray(Y[0])}
    x = RNG.standard_normal((8, 5, 2))
    close(data_parallel(step, batch_argnums=1, shards=4)(w, x), step(w, x))
    staged, axis = stage_named(lambda x: nnc.tree.leaves(step(w, x)), "i", 4, [nnp.asarray(x[:4, None])], [True])
    joins = collectives_over(staged.graph, frozenset((axis,)))
    assert len(joins) == 3 and set(joins) <= set(staged.graph.nodes)
