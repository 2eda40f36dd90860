"""gather and dynamic_slice that stand alone on a GPU: the elements of the reference in every mode, from any layout, and the status
word for indices that are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import BY_NAME
from nnc.errors import OutOfBoundsError
from tests.contract.commands.samples_index import SAMPLES
from tests.unit.backends.cpu.against_reference import backwards, columns, dense, spaced, values
from tests.unit.backends.cuda.launching import Call, run_steps
from tests.unit.backends.cuda.unfused import call_of, check_calls

NDArray = np.ndarray[Any, Any]
READS = [sample for sample in SAMPLES if sample.command in ("gather", "dynamic_slice")]
ROWS: dict[str, Any] = {"axes": (0,), "batch": 0}
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", list(BY_NAME))
def test_every_sample_reads_the_elements_of_the_reference(kind: str) -> None:
    calls = []
    for sample in READS:
        with np.errstate(all="ignore"):
            x = np.asarray(sample.operands[0]).astype(BY_NAME[kind])
        inputs = [x, *map(np.asarray, sample.operands[1:])]
        calls.append(call_of(sample.command, inputs, dict(sample.params)))
        moved = [columns(x), *map(backwards, inputs[1:])]
        calls.append(call_of(sample.command, moved, dict(sample.params), spaced))
    assert len(calls) > 30
    check_calls(calls)


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_indices_of_every_dtype_are_taken_in_every_mode(index: str) -> None:
    limits = np.iinfo(index)
    places = np.asarray([0, 5, 6, 3, limits.max, limits.min, 100], index)
    tables = values("float32", (6,)), values("int32", (6, 100)), values("complex64", (6, 3, 2))
    tables = (*tables, values("complex128", (6, 5)))
    modes = ("clip", "wrap", "drop", "fill")
    check_calls([call_of("gather", [x, places], {**ROWS, "mode": mode}) for x in tables for mode in modes])


PAIRS = {"both inside": (1, 2), "the first outside": (6, 2), "the second outside": (1, -9), "both outside": (6, -9)}


@pytest.mark.parametrize("pair", PAIRS)
def test_each_of_two_indices_is_held_against_its_own_axis(pair: str) -> None:
    places = [np.asarray([0, place]) for place in PAIRS[pair]]
    tables = values("float32", (6, 9)), values("int16", (6, 9, 5))
    given: dict[str, Any] = {"axes": (0, 1), "batch": 0}
    modes = ("clip", "wrap", "drop", "fill")
    check_calls([call_of("gather", [x, *places], {**given, "mode": mode}) for x in tables for mode in modes])
    ran = run_steps([call_of("gather", [x, *places], {**given, "mode": "error"}) for x in tables])
    assert [each.status for each in ran] == [int(pair != "both inside")] * 2


def test_an_empty_table_is_filled() -> None:
    for kind in ("float64", "int8", "complex64", "complex128"):
        x = values(kind, (0, 3))
        check_calls([call_of("gather", [x, np.zeros(2, np.int64)], {**ROWS, "mode": m}) for m in ("drop", "fill")])


def test_large_reads_move_little_beside_their_elements() -> None:
    x, places = values("float32", (60, 512)), RNG.integers(0, 60, 300)
    (ran,) = check_calls([call_of("gather", [x, places], {**ROWS, "mode": "error"})])
    out = 300 * 512 * 4
    assert ran.sector_bytes <= 2.2 * out
    starts = [np.asarray(3), np.asarray(0)]
    (ran,) = check_calls([call_of("dynamic_slice", [x, *starts], {"sizes": (50, 512), "mode": "error"})])
    assert ran.sector_bytes <= 2.2 * 50 * 512 * 4
    assert max(each.instructions for each in ran.counts) <= 12 * 50 * 512


@pytest.mark.parametrize("layout", [dense, backwards, columns, spaced])
@pytest.mark.parametrize("kind", ["float32", "bool", "complex128", "bfloat16"])
def test_a_slice_starts_anywhere(layout: Any, kind: str) -> None:
    x, calls = layout(values(kind, (7, 9, 5))), []
    for starts in ((0, 0, 0), (3, 4, 2), (-5, 100, 1), (2**40, -(2**40), 3)):
        for sizes in ((4, 5, 3), (7, 1, 2), (7, 9, 1), (1, 1, 1), (7, 9, 5)):
            given = [np.asarray(start, np.int64) for start in starts]
            calls.append(call_of("dynamic_slice", [x, *given], {"sizes": sizes, "mode": "clip"}))
    check_calls(calls)


def test_a_start_out_of_range_sets_the_status() -> None:
    x = values("float32", (7, 9))
    for first, second, refused in ((3, 4, 0), (4, 0, 1), (0, 5, 1), (-1, 0, 1), (0, -1, 1)):
        starts = [np.asarray(first), np.asarray(second, np.int8)]
        (ran,) = run_steps([call_of("dynamic_slice", [x, *starts], {"sizes": (4, 5), "mode": "error"})])
        assert ran.status == refused
    (ran,) = run_steps(
        [call_of("dynamic_slice", [x, np.asarray(1), np.asarray(0)], {"sizes": (7, 2), "mode": "error"})]
    )
    assert ran.status == 1


@pytest.mark.parametrize("mode", ["error", "clip", "wrap"])
def test_places_without_elements_are_checked(mode: str) -> None:
    """Every place in an empty axis is out of range, and so is one behind the last of rows that are empty."""
    params, op = {**ROWS, "mode": mode}, {**ROWS, "mode": mode, "op": "add"}
    calls, refused = [], list[int]()
    for x, last, is_refused in (
        (np.zeros((0, 3)), 1, 1),
        (np.zeros((4, 0)), 3, 0),
        (np.zeros((4, 0)), 4, mode == "error"),
    ):
        places = np.asarray([0, last])
        news = np.zeros((2, x.shape[1]))
        calls += [Call("gather", [x, places], [np.zeros_like(news)], params)]
        calls += [Call("scatter", [x, news, places], [np.zeros_like(x)], op)]
        refused += [int(is_refused)] * 2
    assert [ran.status for ran in run_steps(calls)] == refused


def test_an_empty_slice_is_checked() -> None:
    x, empty = values("float32", (6, 9)), np.zeros((0, 3), np.float32)
    for first, is_refused in ((6, 0), (7, 1), (-1, 1)):
        starts = [np.asarray(first), np.asarray(0)]
        read = Call("dynamic_slice", [x, *starts], [empty.copy()], {"sizes": (0, 3), "mode": "error"})
        write = Call("dynamic_update_slice", [x, empty, *starts], [np.zeros_like(x)], {"mode": "error"})
        here = Call("dynamic_update_slice", [x, empty, *starts], [x], {"mode": "error"})
        assert [ran.status for ran in run_steps([read, write, here])] == [is_refused] * 3
        assert write.outputs[0].tobytes() == x.tobytes()


def test_they_run_on_the_device_and_word_the_errors_of_the_reference() -> None:
    f = nnc.compile(lambda x, i: nnp.take(x, i, axis=0, mode="error"))
    g = nnc.compile(lambda x, i: nnc.dynamic_slice(x, (i, 0), (2, 3), mode="error"))
    h = nnc.compile(lambda x, i: nnp.take(x, i, axis=1, mode="fill"))
    x, places = values("float32", (6, 9)), np.asarray([[1, 5], [0, 2]])
    for each, index in ((f, places), (g, np.asarray(4)), (h, places)):
        wanted = np.asarray(each(x, index))
        found = np.asarray(each(*nnc.device_put((x, index), "ptx:0")))
        assert found.tobytes() == wanted.tobytes()
        assert "by their references" not in nnc.debug.explain(each)
    with pytest.raises(OutOfBoundsError, match="index 6 is out of range for axis 0"):
        np.asarray(f(*nnc.device_put((x, places + 1), "ptx:0")))
    with pytest.raises(OutOfBoundsError, match="5:7 is out of range for axis 0"):
        np.asarray(g(*nnc.device_put((x, np.asarray(5)), "ptx:0")))
    with pytest.raises(OutOfBoundsError, match="no element to index"):
        np.asarray(f(*nnc.device_put((np.zeros((0, 3), np.float32), places), "ptx:0")))
    write = nnc.compile(lambda x, i: nnc.dynamic_update_slice(x, np.zeros((0, 3), np.float32), (i, 0), mode="error"))
    with pytest.raises(OutOfBoundsError, match="7:7 is out of range for axis 0"):
        np.asarray(write(*nnc.device_put((x, np.asarray(7)), "ptx:0")))
