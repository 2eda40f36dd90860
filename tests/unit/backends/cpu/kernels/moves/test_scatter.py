from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.base.dtypes import BY_NAME
from nnc.errors import NncError, OutOfBoundsError
from nnc.graph import command, infer_specs, spec_of
from tests.contract.commands.samples_index import SAMPLES
from tests.unit.backends.cpu.against_reference import backwards, check, columns, cpu_kernel, run, spaced, values

WRITES = [s for s in SAMPLES if s.command in ("scatter", "dynamic_update_slice")]
ROWS: dict[str, Any] = {"axes": (0,), "batch": 0, "mode": "error"}


def takes(name: str, inputs: list[Any], params: Any) -> bool:
    """Whether the command is defined for these operands, and has a native kernel for them."""
    specs = tuple(map(spec_of, inputs))
    try:
        infer_specs(command(name), specs, params)
    except NncError:
        return False
    return cpu_kernel(name, specs, params) is not None


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "bool", "complex64", "complex128"])
def test_every_sample_writes_the_elements_of_the_reference(kind: str) -> None:
    taken = 0
    for sample in WRITES:
        with np.errstate(all="ignore"):
            operands = [np.asarray(x).astype(BY_NAME[kind]) for x in sample.operands[:2]]
        inputs = [*operands, *map(np.asarray, sample.operands[2:])]
        if not takes(sample.command, inputs, sample.params):
            continue
        taken += 1
        tolerance = None if kind.startswith("complex") or sample.params.get("op", "set") == "set" else 0
        check(sample.command, inputs, sample.params, tolerance=tolerance)
        check(sample.command, [columns(operands[0]), *map(backwards, inputs[1:])], sample.params, spaced, tolerance)
    assert taken > 10


def test_updates_of_one_place_are_applied_in_their_order() -> None:
    """So sums of floats have the bits of the reference, also where threads share the columns."""
    rng = np.random.default_rng(0)
    x, places = rng.normal(size=(30, 700)).astype(np.float32), rng.integers(0, 30, 1500)
    updates = rng.normal(size=(1500, 700)).astype(np.float32)
    for op in ("set", "add", "mul"):
        check("scatter", [x, updates, places], {**ROWS, "op": op})
    wide, many = rng.normal(size=(300, 90)), rng.integers(0, 90, (300, 1000))
    check(
        "scatter", [wide, rng.normal(size=(300, 1000)), many], {"axes": (1,), "batch": 1, "mode": "error", "op": "add"}
    )


def test_nan_stays_where_it_meets_a_minimum() -> None:
    x, updates = values("float32", (50, 33)), values("float32", (80, 33), 1)
    places = np.random.default_rng(0).integers(0, 50, 80)
    for op in ("min", "max"):
        check("scatter", [x, updates, places], {**ROWS, "op": op}, tolerance=0)


def test_short_floats_are_rounded_once() -> None:
    x, ones = np.full(3, 2048, np.float16), np.ones(9, np.float16)
    check("scatter", [x, ones, np.zeros(9, np.int64)], {**ROWS, "op": "add"})
    (found,) = run("scatter", [x, ones, np.zeros(9, np.int64)], {**ROWS, "op": "add"})
    assert found.tolist() == [2056, 2048, 2048]


def test_the_operand_may_lie_in_the_memory_of_the_result() -> None:
    x = np.arange(12.0).reshape(4, 3)
    params = {**ROWS, "op": "add"}
    inputs = [x, np.ones((2, 3)), np.asarray([1, 1])]
    chosen = cpu_kernel("scatter", tuple(map(spec_of, inputs)), params)
    assert chosen is not None
    chosen.run(inputs, [x], params)
    assert x.tolist() == [[0, 1, 2], [5, 6, 7], [6, 7, 8], [9, 10, 11]]


def test_an_index_out_of_range_raises_and_reaches_no_other_memory() -> None:
    guarded, params = np.zeros(30), {**ROWS, "op": "set"}
    x = guarded[10:20]
    for place in (-1, 10, 2**40):
        inputs = [x, np.ones(1), np.asarray([place])]
        chosen = cpu_kernel("scatter", tuple(map(spec_of, inputs)), params)
        assert chosen is not None
        with pytest.raises(OutOfBoundsError, match="is out of range for axis 0"):
            chosen.run(inputs, [x], params)
        assert not guarded[:10].any() and not guarded[20:].any()
        with pytest.raises(OutOfBoundsError, match="is out of range for axis 0"):
            run("dynamic_update_slice", [np.zeros(10), np.ones(3), np.asarray(place)], {"mode": "error"})
