"""Mistakes with meshes, `shard_map` and `data_parallel`."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
from nnc.distributed import PartitionSpec, data_parallel, make_mesh, shard_map
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, TraceError, TreeError
from nnc.nn import BatchNorm, Sequential
from tests.errors.reports import reports

P = PartitionSpec
GRID = make_mesh((2, 3), ("a", "b"), simulated=True)
MESH = make_mesh((4,), ("data",), simulated=True)
X = np.arange(144.0).reshape(6, 24)
BATCH = np.arange(48.0).reshape(12, 4) - 20
SPLIT = P("a")


def test_meshes_that_cannot_be_made_are_refused() -> None:
    with reports(ArgumentError, "make_mesh", "4 places", "1 process", "simulated=True"):
        make_mesh((2, 2), ("a", "b"))
    with reports(ArgumentError, "make_mesh", "2 sizes and 1 names"):
        make_mesh((2, 2), ("a",), simulated=True)
    with reports(ArgumentError, "make_mesh", "a name twice"):
        make_mesh((2, 2), ("a", "a"), simulated=True)
    with reports(ArgumentError, "make_mesh", "without places"):
        make_mesh((2, 0), ("a", "b"), simulated=True)
    with reports(ArgumentTypeError, "make_mesh", "a tuple of ints", "4"):
        make_mesh(4, ("a",), simulated=True)  # type: ignore[arg-type]
    with reports(ArgumentTypeError, "make_mesh", "a tuple of strings", "'a'"):
        make_mesh((4,), "a", simulated=True)


def sharded(
    in_specs: Any = SPLIT, out_specs: Any = SPLIT, fun: Any = lambda x: x, mesh: Any = GRID, args: Any = (X,)
) -> Any:
    return shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)(*args)


def test_arrays_that_do_not_fit_the_mesh() -> None:
    with reports(
        ShapeError, "shard_map", "axis 1 of x has 25 elements", "3 places of 'b'", "drop the last 1, or pad with 2"
    ):
        sharded(P(None, "b"), args=(np.zeros((6, 25)),))
    with reports(ShapeError, "shard_map", "x has 1 axes", "speaks of 2"):
        sharded(P(None, "b"), args=(np.zeros(6),))
    with reports(ShapeError, "shard_map", "a result has 0 axes at each place"):
        sharded(fun=lambda x: x.sum())


def test_specs_that_do_not_fit() -> None:
    with reports(ArgumentError, "shard_map", "names 'q'", "the axes 'a', 'b'"):
        sharded(P("q"))
    with reports(ArgumentError, "shard_map", "names an axis twice"):
        sharded(P("a", "a"))
    with reports(ArgumentTypeError, "shard_map", "'a' is no PartitionSpec"):
        sharded("a")
    with reports(ArgumentError, "shard_map", "in_specs has 2 entries for 1 arguments"):
        sharded((P(), P()))
    with reports(TreeError, "out_specs", "does not fit"):
        sharded(out_specs=(P(), P()), fun=lambda x: {"x": x})
    with reports(ArgumentTypeError, "shard_map", "mesh must be a mesh", "make_mesh"):
        sharded(mesh=(2, 3))


def test_results_that_vary_where_the_spec_says_that_they_do_not() -> None:
    with reports(ArgumentError, "shard_map", "result[\"x\"] varies over 'a'", "nnc.pmean(x, 'a')"):
        sharded(out_specs=P(), fun=lambda x: {"x": x})
    with reports(ArgumentError, "shard_map", "result varies over 'a' and 'b'"):
        sharded(P("a", "b"), P())


def test_keyword_arguments_have_no_spec() -> None:
    with reports(ArgumentError, "shard_map", "keyword arguments scale"):
        shard_map(lambda x, scale=1: x * scale, mesh=GRID, in_specs=P(), out_specs=P())(X, scale=2)


def test_batch_norm_over_an_axis_needs_the_axis() -> None:
    with reports(nnc.errors.UnboundAxisError, "no axis 'data'"):
        BatchNorm(4, axis_name="data")(BATCH.astype(np.float32))
    frozen = nnc.nn.inference_mode(Sequential(BatchNorm(4, axis_name="data")))
    assert frozen(BATCH.astype(np.float32))[0].shape == BATCH.shape


def test_batches_that_cannot_be_split() -> None:
    step = data_parallel(lambda w, batch: w, batch_argnums=1, mesh=MESH)
    with reports(
        ShapeError, "data_parallel", 'axis 0 of batch["x"] has 10 elements', "4 places of 'data'", "drop the last 2"
    ):
        step(1.0, {"x": BATCH[:10]})
    with reports(ShapeError, "data_parallel", "batch is 0-d", "that batch_argnums does not name"):
        step(1.0, 2.0)
    with reports(ArgumentError, "data_parallel", "batch_argnums names argument 1"):
        step(1.0)


def test_results_that_vary_and_have_no_mean() -> None:
    step = data_parallel(lambda x: {"hits": (x > 0).sum(), "mean": x.mean()}, batch_argnums=0, mesh=MESH)
    with reports(ArgumentError, "data_parallel", "result[\"hits\"] varies over 'data'", "nnc.psum(x, 'data')"):
        step(BATCH)


def test_axes_that_the_mesh_has_not() -> None:
    with reports(ArgumentError, "data_parallel", "no axis 'batch'", "it has 'data'"):
        data_parallel(lambda x: x, batch_argnums=0, axis_name="batch", mesh=MESH)
    with reports(ArgumentTypeError, "data_parallel", "batch_argnums names no argument"):
        data_parallel(lambda x: x, batch_argnums=(), mesh=MESH)
    with reports(ArgumentTypeError, "data_parallel", "mesh must be a mesh"):
        data_parallel(lambda x: x, batch_argnums=0, mesh=4)  # type: ignore[arg-type]


def test_mistakes_with_shards() -> None:
    step: Any = lambda x: nnc.pmean(x.sum(), "data")
    with reports(ArgumentTypeError, "data_parallel", "shards must be an int", "'4'"):
        data_parallel(step, batch_argnums=0, shards="4")  # type: ignore[arg-type]
    for shards in (0, 3, -2):
        with reports(ArgumentError, "data_parallel", f"shards={shards}", "power of two", "shards=4"):
            data_parallel(step, batch_argnums=0, shards=shards)
    with reports(ArgumentError, "data_parallel", "a mesh of one axis", "'data', 'model'"):
        mesh = make_mesh((2, 2), ("data", "model"), simulated=True)
        data_parallel(step, batch_argnums=0, shards=4, mesh=mesh)
    with reports(ShapeError, "data_parallel", "12 elements", "8 places"):
        data_parallel(step, batch_argnums=0, shards=8)(BATCH)
    looped: Any = lambda x: nnc.fori_loop(0, 2, lambda i, t: t + nnc.pmean(x.sum() * t, "data"), 1.0)
    with reports(TraceError, "data_parallel", "psum over 'data' within a loop", "outside of the loop"):
        data_parallel(looped, batch_argnums=0, shards=4)(BATCH)
