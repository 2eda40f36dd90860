"""scatter and dynamic_update_slice on a GPU: the elements of the reference, in any layout, and in the same order in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import BY_NAME
from nnc.errors import NncError, OutOfBoundsError
from nnc.graph import command, infer_specs, spec_of
from nnc.graph.kernels import kernels_for
from tests.contract.commands.samples_index import SAMPLES
from tests.unit.backends.cpu.against_reference import backwards, columns, dense, spaced, values
from tests.unit.backends.cuda.launching import GPU, Call, run_steps
from tests.unit.backends.cuda.unfused import call_of, check_calls

NDArray = np.ndarray[Any, Any]
WRITES = [sample for sample in SAMPLES if sample.command in ("scatter", "dynamic_update_slice")]
ROWS: dict[str, Any] = {"axes": (0,), "batch": 0, "mode": "error"}
OPS = ("set", "add", "mul", "min", "max")
RNG = np.random.default_rng(0)


def is_taken(name: str, inputs: list[NDArray], params: Any) -> bool:
    """Whether a command is defined for these operands, has a printed kernel, and writes something."""
    specs = tuple(map(spec_of, inputs))
    try:
        infer_specs(command(name), specs, params)
    except NncError:
        return False
    (found,) = kernels_for(command(name), GPU)
    return found.supports(specs, params) and all(x.size for x in inputs)


KINDS = ("float32", "bfloat16", "int8", "uint64", "bool", "complex64", "complex128")


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_writes_the_elements_of_the_reference(kind: str) -> None:
    moved, joined = [], []
    for sample in WRITES:
        params = dict(sample.params)
        with np.errstate(all="ignore"):
            operands = [np.asarray(x).astype(BY_NAME[kind]) for x in sample.operands[:2]]
        inputs = [*operands, *map(np.asarray, sample.operands[2:])]
        if is_taken(sample.command, inputs, params):
            calls = moved if params.get("op", "set") == "set" else joined
            calls.append(call_of(sample.command, inputs, params))
            turned = [columns(operands[0]), *map(backwards, inputs[1:])]
            calls.append(call_of(sample.command, turned, params, spaced))
    assert len(moved) > 15 and len(joined) > 10
    check_calls(moved)
    check_calls(joined, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_few_updates_of_one_place_are_applied_in_their_order(kind: str) -> None:
    """So sums of floats are those of the reference."""
    x, updates = values(kind, (9, 5)), values(kind, (30, 5), 1)
    places = RNG.integers(-2, 11, 30).astype(np.int16)
    few = [op for op in OPS if kind[0] != "c" or op in ("set", "add")]
    calls = [call_of("scatter", [x, updates, places], {**ROWS, "mode": "drop", "op": op}) for op in few]
    calls += [call_of("scatter", [x, updates, places], {**ROWS, "mode": "wrap", "op": op}) for op in few]
    check_calls(calls, 0)


@pytest.mark.parametrize(("count", "rows"), [(33, 7), (64, 1), (65, 900), (1024, 7), (1025, 1), (1025, 900), (3000, 7)])
def test_many_updates_are_sorted_and_joined_in_chunks(count: int, rows: int) -> None:
    places = RNG.integers(0, rows, count)
    places[count // 3 : count // 2] = rows // 2  # a long segment
    x, updates = RNG.normal(size=(rows, 3)), RNG.normal(size=(count, 3))
    near = 1 + updates * 1e-3
    check_calls([call_of("scatter", [x, updates, places], {**ROWS, "op": op}) for op in ("set", "min", "max")], 0)
    sums = [call_of("scatter", [x, updates, places], {**ROWS, "op": "add"})]
    sums.append(call_of("scatter", [x, near, places], {**ROWS, "op": "mul"}))
    check_calls(sums, 1e-11)
    first = [call.outputs[0].tobytes() for call in sums]
    run_steps(sums)
    assert first == [call.outputs[0].tobytes() for call in sums]


@pytest.mark.parametrize("kind", ["int8", "int32", "uint64", "bool"])
def test_many_integers_join_exactly(kind: str) -> None:
    x, updates = values(kind, (40,)), values(kind, (200,), 1)
    places = RNG.integers(0, 40, 200)
    check_calls([call_of("scatter", [x, updates, places], {**ROWS, "op": op}) for op in OPS])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_short_floats_are_rounded_once(kind: str) -> None:
    x, ones = np.full(3, 256, BY_NAME[kind]), np.full(90, 0.5, BY_NAME[kind])
    (ran,) = check_calls([call_of("scatter", [x, ones, np.zeros(90, np.int64)], {**ROWS, "op": "add"})])
    assert ran.status == 0


def test_vectors_of_rows_are_moved_once() -> None:
    x, updates = values("float32", (64, 512)), values("float32", (40, 512), 1)
    places = RNG.permutation(64)[:40]
    for given in ({"op": "set", "unique": True}, {"op": "set"}):
        out = x.copy()
        (ran,) = run_steps([Call("scatter", [out, updates, places], [out], {**ROWS, **given})])
        x[places] = updates
        assert out.tobytes() == x.tobytes()
        assert (
            ran.sector_bytes <= 2.3 * updates.nbytes
        )  # the rest of the operand, in whose memory the result lies, is not read
    (ran,) = run_steps(
        [Call("scatter", [x, updates, places], [np.zeros_like(x)], {**ROWS, "op": "set", "unique": True})]
    )
    assert ran.sector_bytes <= 2.1 * (x.nbytes + updates.nbytes)


@pytest.mark.parametrize("op", OPS)
def test_the_operand_may_lie_in_the_memory_of_the_result(op: str) -> None:
    x, updates, places = values("int32", (20, 6)), values("int32", (300, 6), 1), RNG.integers(0, 20, 300)
    for kind in ("int32", "float16"):
        with np.errstate(all="ignore"):
            here, news = x.astype(kind), (updates % 3).astype(kind)
        plain = call_of("scatter", [here, news, places], {**ROWS, "op": op})
        run_steps([plain])
        out = here.copy()
        run_steps([Call("scatter", [out, news, places], [out], {**ROWS, "op": op})])
        np.testing.assert_array_equal(out, plain.outputs[0])


@pytest.mark.parametrize("bad", [20, -1, 2**40, -(2**40)])
@pytest.mark.parametrize("given", [{"op": "add"}, {"op": "set"}, {"op": "set", "unique": True}], ids=str)
def test_an_index_out_of_range_sets_the_status_and_writes_nothing(given: dict[str, Any], bad: int) -> None:
    guarded = np.zeros(60, np.float32)
    x, places = guarded[20:40], np.asarray([3, bad, 4])
    (ran,) = run_steps([Call("scatter", [x, np.ones(3, np.float32), places], [x], {**ROWS, **given})])
    assert ran.kernel.may_fail and ran.status == 1
    assert not guarded[:20].any() and not guarded[40:].any()
    assert x[3] == x[4] == 1 and x.sum() == 2


@pytest.mark.parametrize("kind", ["float32", "bool", "complex128", "bfloat16"])
def test_a_slice_is_written_anywhere(kind: str) -> None:
    calls = []
    for layout in (dense, backwards, columns, spaced):
        x = layout(values(kind, (7, 9, 5)))
        for starts in ((0, 0, 0), (3, 4, 2), (-5, 100, 1), (2**40, -(2**40), 3)):
            for sizes in ((4, 5, 3), (7, 1, 2), (7, 9, 1), (1, 1, 1), (7, 9, 5)):
                inputs = [x, layout(values(kind, sizes, 1)), *(np.asarray(start) for start in starts)]
                calls.append(call_of("dynamic_update_slice", inputs, {"mode": "clip"}, layout))
    check_calls(calls)


def test_a_start_out_of_range_sets_the_status() -> None:
    x, update = values("float32", (7, 9)), values("float32", (4, 5))
    for first, second, refused in ((3, 4, 0), (4, 0, 1), (0, 5, 1), (-1, 0, 1), (0, -1, 1)):
        starts = [np.asarray(first), np.asarray(second, np.int8)]
        (ran,) = run_steps([call_of("dynamic_update_slice", [x, update, *starts], {"mode": "error"})])
        assert ran.status == refused


def test_a_slice_written_in_place_leaves_the_rest_alone() -> None:
    cache, new = values("float32", (512, 64)), values("float32", (1, 64), 1)
    wanted = cache.copy()
    wanted[100] = new
    call = Call("dynamic_update_slice", [cache, new, np.asarray(100), np.asarray(0)], [cache], {"mode": "error"})
    (ran,) = run_steps([call])
    assert cache.tobytes() == wanted.tobytes() and ran.sector_bytes <= 1024


def step(p: dict[str, Any], tokens: Any, targets: Any) -> Any:
    """A training step of a model that reads rows of a table, one of them many times."""

    def loss(p: dict[str, Any]) -> Any:
        rows = nnp.take(p["table"], tokens, axis=0, mode="error")
        scores = (nnp.tanh(rows.mean(1)) * p["scale"]).sum(-1)
        return nnp.mean((scores - targets) ** 2)

    value, grads = nnc.value_and_grad(loss)(p)
    return value, nnc.tree.map(lambda x, g: x - 0.1 * g, p, grads)


@pytest.mark.parametrize("rows", [3, 50])
def test_a_training_step_of_an_embedding_runs_on_the_device(rows: int) -> None:
    """Sums of gradients are formed in one order on the device and in another one on the CPU."""
    draw = np.random.default_rng(3)
    tokens = draw.integers(0, rows, (12, 9))
    tokens[:, 5:] = 0  # padding
    p = {"table": draw.normal(size=(rows, 16)).astype(np.float32), "scale": np.ones(16, np.float32)}
    targets, train = draw.normal(size=12).astype(np.float32), nnc.compile(step)
    here, there = p, nnc.device_put(p, "ptx:0")
    given = nnc.device_put((tokens, targets), "ptx:0")
    for _ in range(3):
        loss, here = train(here, tokens, targets)
        other, there = train(there, *given)
        np.testing.assert_allclose(np.asarray(other), np.asarray(loss), 1e-5)
    assert "by their references" not in nnc.debug.explain(train)
    for found, wanted in zip(nnc.tree.leaves(there), nnc.tree.leaves(here), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), 3e-6, 3e-6)
    runs = [nnc.tree.leaves(train(nnc.device_put(p, "ptx:0"), *given)) for _ in range(2)]
    assert [np.asarray(x).tobytes() for x in runs[0]] == [np.asarray(x).tobytes() for x in runs[1]]


def test_updates_in_donated_memory_run_on_the_device() -> None:
    def write(cache: Any, counts: Any, i: Any, new: Any) -> Any:
        return nnc.dynamic_update_slice(cache, new, (i, 0)), counts.at[i].add(1)

    f = nnc.compile(write, donate_argnames=("cache", "counts"))
    cache, counts, new = values("float32", (8, 5)), np.zeros(8, np.int32), np.ones((1, 5), np.float32)
    state = nnc.device_put((cache, counts), "ptx:0")
    for i in (3, 0, 3):
        state = f(*state, *nnc.device_put((np.asarray(i), new), "ptx:0"))
    assert "by their references" not in nnc.debug.explain(f)
    cache[[0, 3]] = 1
    np.testing.assert_array_equal(np.asarray(state[0]), cache)
    assert np.asarray(state[1]).tolist() == [1, 0, 0, 2, 0, 0, 0, 0]


def test_an_error_is_worded_by_the_reference() -> None:
    f = nnc.compile(lambda x, i: x.at[i].add(1.0, mode="error"))
    given = nnc.device_put((np.zeros((6, 2), np.float32), np.asarray([1, 7])), "ptx:0")
    with pytest.raises(OutOfBoundsError, match="index 7 is out of range for axis 0"):
        np.asarray(f(*given))
    many = nnc.device_put((np.zeros((6, 2), np.float32), np.arange(50) % 7), "ptx:0")  # these are sorted
    with pytest.raises(OutOfBoundsError, match="index 6 is out of range for axis 0"):
        np.asarray(f(*many))
