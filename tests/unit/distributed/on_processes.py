"""Checks of several processes: `mpiexec -n 2 python -m tests.unit.distributed.on_processes` prints their failures as JSON.

Each compares a mesh of processes with the simulated mesh of the same axes, with one process on the whole batch, or with JAX.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.distributed import PartitionSpec, data_parallel, make_mesh, rank, shard_map, size
from nnc.errors import NncError, TraceError
from tests.unit.distributed.test_parallel import X, Y, network, training_step
from tests.unit.distributed.test_shards import collectives
from tests.unit.nn.test_parallel import NEXT, WORDS, LanguageModel
from tests.unit.nn.test_parallel import training_step as language_step
from tests.unit.optim.test_compressed import PARAMS
from tests.unit.optim.test_compressed import training_step as compressed_step
from tests.unit.trace.core import collective_cases as cases
from tests.unit.trace.core.test_collectives import EXPECTED, OPS

P = PartitionSpec
CHECKS: dict[str, Callable[[], None]] = {}
WRAPS: tuple[Any, ...] = (lambda f: f, nnc.compile)
STREAMS = partial(nnc.compile, streams=2)  # messages have a thread of their own


def check(run: Callable[[], None]) -> Callable[[], None]:
    CHECKS[run.__name__] = run
    return run


def same(got: Any, want: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
        if nnc.tree.is_array(b):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(
                np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance
            )


def meshes(*sizes: int) -> tuple[Any, Any]:
    """A mesh of all processes, and the simulated one of the same axes."""
    names = ("i", "j")[: len(sizes)]
    return make_mesh(sizes, names), make_mesh(sizes, names, simulated=True)


@check
def values_and_derivatives_are_those_of_jax() -> None:
    if size() != cases.PLACES:
        return
    mesh, _ = meshes(cases.PLACES)
    for case in cases.CASES:
        for wrap in WRAPS:
            place = lambda x, case=case: tuple(y[None] for y in cases.results(OPS, case, nnp.asarray(cases.W), x[0]))
            found = wrap(shard_map(place, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(cases.X)
            for got, want in zip(found, EXPECTED[case.__name__], strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-11, atol=1e-11)


@check
def every_dtype_is_joined_as_in_one_process() -> None:
    n = size()
    rng = np.random.default_rng(0)
    turned = [(k, (k + 1) % n) for k in range(n)]
    for dtype in (
        np.float32,
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        np.int8,
        np.uint64,
        np.int32,
        np.bool_,
        np.complex64,
    ):
        x = (rng.integers(0, 9, (n * n, 3)) / (4 if np.dtype(dtype).kind not in "iub" else 1)).astype(dtype)

        def join(x: Any, dtype: Any = dtype) -> Any:
            found = {
                "gathered": nnc.all_gather(x, "i")[None], "moved": nnc.ppermute(x, "i", turned),
                "first": nnc.ppermute(x, "i", turned[:1]), "exchanged": nnc.all_to_all(x, "i", 0, 0),
                "sum": nnc.psum(x, "i"), "of rows": nnc.psum(x[:, :1].T, "i"),
            }  # fmt: skip
            if dtype is not np.complex64:
                found |= {"most": nnc.pmax(x, "i"), "least": nnc.pmin(x, "i")}
            if dtype is not np.bool_:
                found |= {"mean": nnc.pmean(x, "i"), "scattered": nnc.psum_scatter(x, "i")[None]}
            return found

        out = dict.fromkeys(("sum", "of rows", "most", "least", "mean"), P())
        out |= dict.fromkeys(("gathered", "moved", "first", "exchanged", "scattered"), P("i"))
        if dtype is np.complex64:
            del out["most"], out["least"]
        if dtype is np.bool_:
            del out["mean"], out["scattered"]
        one, other = (shard_map(join, mesh=mesh, in_specs=P("i"), out_specs=out) for mesh in meshes(n))
        for wrap in WRAPS:
            got, want = wrap(one)(x), other(x)
            for name in want:
                a, b = np.asarray(got[name]), np.asarray(want[name])
                assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (np.dtype(dtype).name, name, a, b)


@check
def maxima_of_nan_are_nan_at_all_places() -> None:
    mesh, _ = meshes(size())
    x = np.zeros(size(), np.float32)
    x[-1] = np.nan
    for wrap in WRAPS:
        found = wrap(shard_map(lambda x: nnc.pmax(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))(x)
        assert np.isnan(np.asarray(found)).all()


@check
def axes_of_a_grid_are_rows_and_columns_of_processes() -> None:
    if size() != 4:
        return
    x, w = np.arange(96.0).reshape(4, 24), np.array(0.25)

    def place(x: Any, w: Any) -> Any:
        y = nnp.sin(x * w)
        rows, columns = nnc.psum(y, "i"), nnc.psum(y, "j")
        number = nnc.axis_index("i") * 10 + nnc.axis_index(("i", "j"))
        total = nnc.psum(rows.sum() * columns.sum(), ("i", "j"))
        every = nnc.all_gather(y.sum(), ("i", "j"))[None]
        return total, (y, nnc.pvary(rows, "i"), nnc.pvary(columns, "j"), every, nnc.psum(y * number, ("j", "i")))

    def derivatives(mesh: Any, spec: Any) -> Any:
        out = (P(), (spec, spec, spec, P(("i", "j")), P()))
        mapped = shard_map(place, mesh=mesh, in_specs=(spec, P()), out_specs=out)
        return nnc.value_and_grad(mapped, argnums=(0, 1), has_aux=True)

    one, other = meshes(2, 2)
    for spec in (P("i", "j"), P("j", "i"), P(("i", "j")), P(None, ("j", "i"))):
        for wrap in WRAPS:
            same(wrap(derivatives(one, spec))(x, w), derivatives(other, spec)(x, w))


@check
def transforms_work_around_and_inside() -> None:
    n = size()
    x, w = np.arange(6.0 * n).reshape(2 * n, 3) / 7, np.array([0.5, -1.0, 2.0])

    def place(x: Any, w: Any) -> Any:
        total = nnc.vmap(lambda row: nnc.psum(nnp.tanh(row @ w), "i"))(x).sum()
        total = nnc.fori_loop(0, 3, lambda i, t: t + nnc.pmean(nnp.sin(t * w[0] + x.sum()), "i"), total)
        total = nnc.while_loop(lambda t: nnc.pmax(t, "i") < 50, lambda t: t * 2 + nnc.psum(t, "i"), abs(total) + 1)
        return nnc.checkpoint(lambda t: nnc.psum(t * (x * w).sum(), "i"))(total)

    one, other = (shard_map(place, mesh=mesh, in_specs=(P("i"), P()), out_specs=P()) for mesh in meshes(n))
    for wrap in WRAPS:
        same(wrap(one)(x, w), other(x, w))
        same(wrap(nnc.grad(one, argnums=(0, 1)))(x, w), nnc.grad(other, argnums=(0, 1))(x, w), 1e-9)
        same(
            wrap(nnc.vmap(lambda w: one(x, w)))(np.stack([w, w * 2])),
            nnc.vmap(lambda w: other(x, w))(np.stack([w, w * 2])),
        )
    same(nnc.hessian(lambda w: one(x, w))(w), nnc.hessian(lambda w: other(x, w))(w), 1e-8)


@check
def training_is_training_on_the_whole_batch() -> None:
    optimizer = nnc.optim.chain(nnc.optim.clip_by_global_norm(0.5), nnc.optim.adam(1e-2))
    step = training_step(optimizer)
    model = network()
    for wrap in (STREAMS, *WRAPS):
        many, one = wrap(data_parallel(step, batch_argnums=(2, 3))), wrap(step)
        a = b = (model, optimizer.init(model))
        for _ in range(3):
            found, expected = many(*a, X, Y), one(*b, X, Y)
            same(found, expected, 1e-9)
            a, b = found[:2], expected[:2]
    steps = str(many.lower(*a, X, Y).compile().schedule).splitlines()
    assert sum("psum" in step for step in steps) == 1, steps  # gradients, loss and metrics in one bucket
    (sent,) = re.findall(r"float64\[(\d+)\] = psum", many.lower(*a, X, Y).compile().as_text())
    count = sum(x.size for x in nnc.tree.leaves(model) if nnc.tree.is_array(x))
    assert count < int(sent) <= count + 2  # gradients of biases, too, are summed over the examples first


@check
def training_on_shares_is_training_on_the_whole_batch() -> None:
    optimizer = nnc.optim.sharded(nnc.optim.adam(1e-2), "data")
    step, model, key = training_step(nnc.optim.adam(1e-2)), network(), nnc.random.key(1)
    for wrap in WRAPS:
        many, one = wrap(data_parallel(training_step(optimizer), batch_argnums=(2, 3), local_batch=True)), wrap(step)
        a, b = (model, optimizer.init(model)), (model, nnc.optim.adam(1e-2).init(model))
        shares = nnc.data.batches((X, Y), 8, key, 1, epochs=2, share=(rank(), size()))
        for own, whole in zip(shares, nnc.data.batches((X, Y), 8, key, epochs=2), strict=True):
            assert len(own[0]) * size() == len(whole[0])
            found, expected = many(*a, *own), one(*b, *whole)
            same((found[0], found[2:]), (expected[0], expected[2:]), 1e-9)
            a, b = found[:2], expected[:2]


@check
def a_sharded_optimizer_keeps_its_part_in_each_process() -> None:
    optimizer = nnc.optim.adam(1e-2)
    sharded = nnc.optim.sharded(optimizer, "data")
    model = network()
    count = sum(x.size for x in nnc.tree.leaves(model) if nnc.tree.is_array(x))
    for wrap in WRAPS:
        many, one = wrap(data_parallel(training_step(sharded), batch_argnums=(2, 3))), wrap(training_step(optimizer))
        a, b = (model, sharded.init(model)), (model, optimizer.init(model))
        for _ in range(3):
            found, expected = many(*a, X, Y), one(*b, X, Y)
            same((found[0], found[2:]), (expected[0], expected[2:]), 1e-9)
            a, b = found[:2], expected[:2]
            vectors = [x for x in nnc.tree.leaves(a[1]) if nnc.tree.is_array(x) and x.ndim]
            assert {x.size for x in vectors} == {-(-count // size())} and len(vectors) == 2


@check
def a_transformer_whose_weights_are_split_trains_as_in_one_process() -> None:
    optimizer, model = nnc.optim.adam(1e-2), LanguageModel(nnc.random.key(0))
    split = nnc.nn.tensor_parallel(model, "model")
    mesh = make_mesh((size() // 2, 2), ("data", "model"))
    step = language_step(optimizer)
    for wrap in WRAPS:
        many, one = wrap(data_parallel(step, batch_argnums=(2, 3), mesh=mesh)), wrap(step)
        a, b = (split, optimizer.init(split)), (model, optimizer.init(model))
        for _ in range(3):
            found, expected = many(*a, WORDS, NEXT), one(*b, WORDS, NEXT)
            same(found[2], expected[2])
            a, b = found[:2], expected[:2]
        assert a[0].blocks[0].linear1.weight.shape == (6, 8)
        same(nnc.distributed.gather(a, mesh=mesh), b, 1e-9)
    with pytest.raises(NncError, match="the part of this process"):
        nnc.io.save("never.safetensors", a[0])


@check
def compressed_gradients_have_the_sums_of_a_simulated_mesh() -> None:
    mesh, simulated = (make_mesh((size(),), ("data",), simulated=on) for on in (False, True))
    batch = np.c_[X, X[:, :1]], Y
    for settings in ({"dtype": "bfloat16"}, {"fraction": 0.2}, {"fraction": 0.2, "dtype": "float16"}):
        optimizer = nnc.optim.compressed(nnc.optim.adam(1e-2), "data", places=size(), **settings)
        for wrap in WRAPS:
            many, one = (
                wrap(data_parallel(compressed_step(optimizer), batch_argnums=(2, 3), mesh=each))
                for each in (mesh, simulated)
            )
            a = b = (PARAMS, optimizer.init(PARAMS))
            for _ in range(3):
                a, b = many(*a, *batch)[:2], one(*b, *batch)[:2]
                same(a[0], b[0], 1e-6)
    path = Path(shared_folder()) / "last.safetensors"
    nnc.io.save(path, a, sharded=True)
    again = nnc.io.load(path, like=(PARAMS, optimizer.init(PARAMS)))
    whole = again[1]["unsent"]["float64"].state
    own = np.asarray(a[1]["unsent"]["float64"].state)
    np.testing.assert_array_equal(np.asarray(whole).reshape(size(), -1)[rank()], own)
    equal_bits(many(*a, *batch), many(*again, *batch))


def shared_folder() -> str:
    from mpi4py import MPI  # noqa: PLC0415

    found: str = MPI.COMM_WORLD.bcast(tempfile.mkdtemp() if rank() == 0 else None)
    return found


@check
def a_checkpoint_of_each_process_resumes_with_the_same_bits() -> None:
    optimizer = nnc.optim.sharded(nnc.optim.adam(1e-2), "data")
    step = nnc.compile(data_parallel(training_step(optimizer), batch_argnums=(2, 3)))
    model = network()
    folder = Path(shared_folder())
    path, now = folder / "last.safetensors", (model, optimizer.init(model))
    for i in range(4):
        if i == 2:
            nnc.io.save(path, now, sharded=True)
            kept = now
        now = step(*now, X, Y)[:2]
    assert len(list(folder.iterdir())) == size() + 1
    again = nnc.io.load(path, like=(model, optimizer.init(model)))
    vectors = [x for x in nnc.tree.leaves(again[1]) if nnc.tree.is_array(x) and x.ndim]
    parts = [x for x in nnc.tree.leaves(kept[1]) if nnc.tree.is_array(x) and x.ndim]
    for whole, part in zip(vectors, parts, strict=True):
        own = np.asarray(whole)[rank() * part.size : (rank() + 1) * part.size]
        assert np.array_equal(own, np.asarray(part)[: own.size])
    for _ in range(2):
        again = step(*again, X, Y)[:2]
    equal_bits(again, now)


@check
def all_processes_have_the_same_bits() -> None:
    step = nnc.compile(data_parallel(training_step(nnc.optim.adam(1e-2)), batch_argnums=(2, 3)))
    model = network()
    state = nnc.optim.adam(1e-2).init(model)
    for _ in range(5):
        model, state, *_ = step(model, state, X, Y)
    digest = hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in nnc.tree.leaves(model) if nnc.tree.is_array(x)))
    mine = np.frombuffer(digest.digest()[:4], np.uint32)
    mesh, _ = meshes(size())
    found = shard_map(
        lambda x: nnc.all_gather(nnc.pvary(x, "i"), "i", tiled=True), mesh=mesh, in_specs=P(), out_specs=P("i")
    )(mine)
    assert len(set(np.asarray(found).tolist())) == 1


@check
def shards_have_the_same_bits_on_any_number_of_processes() -> None:
    narrow: Any = lambda values: nnc.tree.map(lambda x: x.astype("float32") if nnc.tree.is_array(x) else x, values)
    model, x, y = narrow(network()), np.tile(X, (2, 1)).astype("f"), np.tile(Y, (2, 1)).astype("f")
    alone = make_mesh((1,), ("data",), simulated=True)
    for make in (nnc.optim.adam, lambda rate: nnc.optim.sharded(nnc.optim.adam(rate), "data")):
        optimizer = make(1e-2)
        step = training_step(optimizer)
        one = data_parallel(step, batch_argnums=(2, 3), shards=8, mesh=alone)
        here, everywhere = nnc.compile(one), nnc.compile(data_parallel(step, batch_argnums=(2, 3), shards=8))
        a = b = (model, optimizer.init(model))
        for _ in range(100):
            a, b = everywhere(*a, x, y)[:2], here(*b, x, y)[:2]
        equal_bits(a, b)
    rows = slice(rank() * (len(x) // size()), (rank() + 1) * (len(x) // size()))
    local = data_parallel(step, batch_argnums=(2, 3), shards=8, local_batch=True)
    for wrap in WRAPS:
        state = optimizer.init(model)
        equal_bits(wrap(local)(model, state, x[rows], y[rows]), wrap(one)(model, state, x, y))
        many, one_place = (data_parallel(collectives, batch_argnums=1, shards=4, mesh=mesh) for mesh in (None, alone))
        equal_bits(wrap(many)(nnp.asarray(x[0]), x[:4]), wrap(one_place)(nnp.asarray(x[0]), x[:4]))


def equal_bits(got: Any, want: Any) -> None:
    for a, b in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
        if nnc.tree.is_array(b):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), (a, b)


@check
def mistakes_are_worded() -> None:
    for wrong, words in (
        (
            lambda: make_mesh((size() + 1,), ("i",)),
            f"the mesh has {size() + 1} places, and the program runs in {size()} processes",
        ),
        (lambda: data_parallel(lambda x: x.sum(), batch_argnums=0)(np.ones(size() + 1)), "no multiple of"),
    ):
        with pytest.raises(NncError, match=words):
            wrong()


@check
def processes_that_trace_different_programs_are_told() -> None:
    mesh, _ = meshes(size())
    add = shard_map(lambda x: nnc.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    branch = shard_map(
        lambda x: nnc.psum(nnp.sin(x) if rank() else nnp.cos(x), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
    )
    mixed = np.ones(2 * size(), np.int32 if rank() == 1 else np.float32)
    longer = np.ones((2 + 2 * (rank() == 1)) * size())
    for wrap in WRAPS:
        for f, x, words in (
            (add, mixed, "rank 1.*int32"),
            (add, longer, r"float64\[\d,4\]"),
            (branch, np.ones(size()), "cos"),
        ):
            with pytest.raises(TraceError, match=f"(?s)traced different programs.*rank 0.*{words}"):
                wrap(f)(x)
        by_rank = shard_map(lambda x: nnc.psum(x * rank(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
        np.testing.assert_array_equal(wrap(by_rank)(np.ones(size())), [sum(range(size()))])


@check
def processes_that_compile_with_different_options_are_told() -> None:
    mesh, _ = meshes(size())
    add = shard_map(lambda x: nnc.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    budget = 10**6 if rank() == 1 else None
    with pytest.raises(
        TraceError, match="(?s)rank 0 *memory_budget = None.*rank 1 *memory_budget = 1000000.*same options"
    ):
        nnc.compile(add, memory_budget=budget)(np.ones(size()))
    np.testing.assert_array_equal(nnc.compile(add, memory_budget=10**6)(np.ones(size())), [size()])


def main() -> None:
    """Runs all checks, and prints the failures of all processes by check."""
    from mpi4py import MPI  # noqa: PLC0415

    failures: dict[str, str] = {}
    for name, run in CHECKS.items():
        try:
            run()
        except Exception:
            failures[name] = traceback.format_exc()
    found = MPI.COMM_WORLD.gather(failures)
    if rank() == 0:
        names = CHECKS.keys()
        print(json.dumps({name: "\n".join(each[name] for each in found or () if name in each) for name in names}))


if __name__ == "__main__":
    main()
