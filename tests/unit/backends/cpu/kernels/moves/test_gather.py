from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.base.dtypes import BY_NAME
from nnc.errors import OutOfBoundsError
from tests.contract.commands.samples_index import SAMPLES
from tests.unit.backends.cpu.against_reference import backwards, check, columns, run, values

WITH_INDEX = [s for s in SAMPLES if s.command in ("gather", "dynamic_slice")]
GRID: dict[str, Any] = {"axes": (0,), "batch": 0}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "uint8", "bool", "complex128"])
def test_every_sample_reads_the_elements_of_the_reference(kind: str) -> None:
    for sample in WITH_INDEX:
        with np.errstate(all="ignore"):
            x = np.asarray(sample.operands[0]).astype(BY_NAME[kind])
        check(sample.command, [x, *map(np.asarray, sample.operands[1:])], sample.params)
        check(sample.command, [columns(x), *map(backwards, map(np.asarray, sample.operands[1:]))], sample.params)


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill"])
def test_indices_of_every_dtype_are_taken_in_every_mode(index: str, mode: str) -> None:
    limits = np.iinfo(index)
    places = np.asarray([0, 5, 6, 3, limits.max, limits.min, 100], index)
    for x in (values("float32", (6,)), values("int32", (6, 100)), values("complex64", (6, 3, 2))):
        check("gather", [x, places], {**GRID, "mode": mode})


def test_an_index_out_of_range_raises_the_error_of_the_reference() -> None:
    for x in (np.zeros(6), np.zeros((6, 0)), np.zeros((700, 800), np.float32)):
        for place in (-1, len(x), 2**40):
            places = np.zeros(500, np.int64)
            places[321] = place
            with pytest.raises(OutOfBoundsError, match="is out of range for axis 0"):
                run("gather", [x, places], {**GRID, "mode": "error"})
    with pytest.raises(OutOfBoundsError, match="no element to index"):
        run("gather", [np.zeros((0, 3)), np.zeros(2, np.int64)], {**GRID, "mode": "wrap"})
    with pytest.raises(OutOfBoundsError, match="4:7 is out of range"):
        run("dynamic_slice", [np.zeros(6), np.asarray(4)], {"sizes": (3,), "mode": "error"})


PAIRS = {"both inside": (1, 2), "the first outside": (6, 2), "the second outside": (1, -9), "both outside": (6, -9)}


@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill", "error"])
@pytest.mark.parametrize("pair", PAIRS)
def test_each_of_two_indices_is_held_against_its_own_axis(pair: str, mode: str) -> None:
    first, second = (np.asarray([0, place]) for place in PAIRS[pair])
    params = {"axes": (0, 1), "batch": 0, "mode": mode}
    for x in (values("float32", (6, 9)), values("int16", (6, 9, 5))):
        if mode != "error" or pair == "both inside":
            check("gather", [x, first, second], params)
        else:
            with pytest.raises(OutOfBoundsError, match="is out of range for axis"):
                run("gather", [x, first, second], params)


def test_an_empty_axis_is_filled() -> None:
    for mode in ("drop", "fill"):
        check("gather", [np.zeros((0, 3)), np.zeros(2, np.int64)], {**GRID, "mode": mode})


def test_large_reads_are_shared_by_threads() -> None:
    x, places = values("float32", (600, 700)), np.random.default_rng(0).integers(0, 600, (600, 500))
    check("gather", [x, places], {"axes": (1,), "batch": 1, "mode": "error"})
    check("gather", [x, places[0]], {**GRID, "mode": "error"})
    check("dynamic_slice", [x, np.asarray(3), np.asarray(-5)], {"sizes": (500, 600), "mode": "clip"})
