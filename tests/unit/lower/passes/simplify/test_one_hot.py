"""Products with one-hot tensors are look-ups; inner products of computed tensors are sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import evaluate, names, run

_RNG = np.random.default_rng(8)
K, D = 40, 12
TABLE = _RNG.normal(size=(K, D)).astype(np.float32)
LABELS = _RNG.integers(-3, K + 3, (3, 8)).astype(np.int32)  # some are no class

LOOKUPS: dict[str, Callable[..., Any]] = {
    "one_hot": lambda t, y: nn.one_hot(y, K) @ t,
    "compared": lambda t, y: (y[..., None] == nnp.arange(K)).astype("float32") @ t,
    "another axis": lambda t, y: t.T @ nn.one_hot(y[0], K, axis=0),
    "einsum": lambda t, y: nnp.einsum("btk,kd->btd", nn.one_hot(y, K), t),
    "einsum, turned": lambda t, y: nnp.einsum("kd,btk->dbt", t, nn.one_hot(y, K)),
    "tensordot": lambda t, y: nnp.tensordot(nn.one_hot(y, K), t, axes=1),
    "rows of an identity": lambda t, y: nnp.eye(K, dtype="float32")[y % K] @ t,
    "rows of a small identity": lambda t, y: nnp.eye(16, dtype="float32")[y % 16] @ t[:16],
    "example by example": lambda t, y: nnc.vmap(lambda label: nn.one_hot(label, K) @ t)(y),
    "small integers": lambda t, y: nn.one_hot(y.astype("int8"), K) @ t,
}


@pytest.mark.parametrize("spelling", LOOKUPS)
def test_a_product_with_one_hot_labels_reads_rows_and_its_gradient_adds_to_them(spelling: str) -> None:
    function = LOOKUPS[spelling]
    gradient = nnc.grad(lambda t, y: nnp.sum(nnp.sin(function(t, y))))
    for f in (function, gradient):
        found = names(run(nnc.make_graph(f)(TABLE, LABELS), *names_of(SIMPLIFYING)))
        assert "dot" not in found
        compiled = nnc.compile(f)
        np.testing.assert_allclose(compiled(TABLE, LABELS), f(TABLE, LABELS), rtol=2e-5, atol=1e-6)
        assert compiled.lower(TABLE, LABELS).compile().memory_plan.peak < 2.2 * TABLE.nbytes


def test_a_label_that_is_no_class_has_a_row_of_zeros() -> None:
    rows = np.asarray(nnc.compile(lambda t: nn.one_hot(np.asarray([-1, K, 2]), K) @ t)(TABLE))
    np.testing.assert_array_equal(rows, [np.zeros(D), np.zeros(D), TABLE[2]])


def test_products_that_are_no_look_ups_stay() -> None:
    soft = lambda t, y: (0.9 * nn.one_hot(y, K) + 0.1) @ t
    shifted = lambda t, y: (y[..., None] == nnp.arange(K) + 1).astype("float32") @ t
    halved = lambda t, y: (y[..., None] == nnp.arange(K) // 2).astype("float32") @ t
    over_rows = lambda t, y: nnp.einsum("btk,kd->kd", nn.one_hot(y, K), t)
    few = lambda t, y: nnp.einsum("btk,bt->k", nn.one_hot(y, 3), y.astype("float32"))
    for function in (soft, shifted, halved, over_rows, few):
        assert {"dot", "reduce_sum"} & set(names(run(nnc.make_graph(function)(TABLE, LABELS), *names_of(SIMPLIFYING))))
        want = function(TABLE, LABELS)
        np.testing.assert_allclose(nnc.compile(function)(TABLE, LABELS), want, rtol=2e-5, atol=1e-5)


X, Z = (_RNG.normal(size=(5, 7)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("spelling", ["nk,nk->", "nk,nk->n", "nk,nk->k"])
def test_inner_products_of_computed_values_are_sums(spelling: str) -> None:
    function = lambda x, z: nnp.einsum(spelling, nnp.sin(x), nnp.exp(z))
    assert "dot" not in names(run(nnc.make_graph(function)(X, Z), *names_of(SIMPLIFYING)))
    np.testing.assert_allclose(nnc.compile(function)(X, Z), function(X, Z), rtol=1e-5, atol=1e-6)
    turned = lambda x, z: nnp.einsum("nk,kn->", nnp.sin(x), nnp.exp(z.T))
    np.testing.assert_allclose(nnc.compile(turned)(X, Z), turned(X, Z), rtol=1e-5, atol=1e-6)
    assert "dot" in names(run(nnc.make_graph(lambda x, z: nnp.einsum(spelling, x, z))(X, Z), *names_of(SIMPLIFYING)))


def test_a_table_for_each_member_of_a_batch_is_read_at_its_own_labels() -> None:
    rng = np.random.default_rng(8)
    labels, tables = rng.integers(0, 20, (3, 5)), rng.normal(size=(3, 20, 4)).astype(np.float32)
    f = lambda y, t: nnp.einsum("bik,bkj->bij", nn.one_hot(y, 20), t)
    graph = nnc.make_graph(f)(labels, tables)
    after = run(graph, *names_of(SIMPLIFYING))
    wanted = np.take_along_axis(tables, labels[..., None], axis=1)
    np.testing.assert_array_equal(evaluate(after, (labels, tables))[0], wanted)
