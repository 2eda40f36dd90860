"""argmax and argmin on a GPU: the first record or the first NaN along any axis, for all dtypes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ShapeError
from nnc.graph import command, reference
from tests.unit.backends.cpu.against_reference import REAL, values
from tests.unit.backends.cuda.launching import Call, run_steps
from tests.unit.backends.cuda.test_conformance import LAYOUTS, SOURCES

NDArray = np.ndarray[Any, Any]
FEW = settings(max_examples=settings.default.max_examples // 5)
SIZES = (1, 2, 3, 7, 16, 33, 64, 100)
LONG = ((20_003,), (3, 5000), (5000, 3), (2048, 4), (1, 4096), (40, 12, 31), (300, 2, 65))


def check(*operands: tuple[NDArray, int]) -> None:
    """Both commands along an axis name the positions that the reference names."""
    calls = []
    for turn, (x, axis) in enumerate(operands):
        shape = tuple(n for k, n in enumerate(x.shape) if k != axis % x.ndim)
        for name in ("argmax", "argmin"):
            out = LAYOUTS[turn % len(LAYOUTS)](np.full(shape, -1))
            calls.append(Call(name, [x], [out], {"axis": axis}))
    run_steps(calls)
    for call in calls:
        wanted = reference[command(call.command)](call.inputs[0], **call.params)
        np.testing.assert_array_equal(
            call.outputs[0], wanted, f"{call.command} of {call.inputs[0].shape} {call.params}"
        )


def variants(x: NDArray, axis: int) -> list[tuple[NDArray, int]]:
    """Elements as they are, equal ones, and ones without NaN."""
    found = [(x, axis), (np.zeros_like(x), axis)]
    if x.dtype.kind not in "iub":
        found.append((np.where(np.isnan(x.astype(np.float32)), 1, x).astype(x.dtype), axis))
    return found


@pytest.mark.parametrize("kind", REAL)
def test_the_first_record_is_named_or_the_first_nan(kind: str) -> None:
    shapes = (((1,), 0), ((20,), 0), ((1000,), 0), ((70, 40), 0), ((70, 40), 1), ((5, 6, 7), 1), ((0, 4), 1))
    check(*[each for shape, axis in shapes for each in variants(values(kind, shape), axis)])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "uint64"])
def test_long_rows_are_shared_by_the_threads_of_a_block(kind: str) -> None:
    check(*[each for s in LONG for axis in range(len(s)) for each in variants(values(kind, s, axis), axis)])


@FEW
@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), st.sampled_from(REAL), st.integers(0, 1000), st.data())
def test_any_layout_is_read(shape: list[int], kind: str, seed: int, data: Any) -> None:
    while np.prod(shape) > 20_000:
        shape = [max(n // 2, 1) for n in shape]
    x = values(kind, tuple(shape), seed)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    check(*[(layout(np.transpose(x, data.draw(st.permutations(range(x.ndim))))), axis) for layout in SOURCES])


@pytest.mark.parametrize("n", [16, 33, 64, 100, 257, 4097])
def test_a_record_in_the_last_place_is_found(n: int) -> None:
    x = np.zeros(n, np.float32)
    x[-1] = 1
    y = np.ones(n, np.float32)
    y[-1] = np.nan
    check((x, 0), (-x, 0), (y, 0), (np.stack([x, y, y], 1), 0))


def test_rows_along_memory_are_read_in_vectors_once() -> None:
    x, out = values("float32", (64, 2048)), np.zeros(64, np.int64)
    (ran,) = run_steps([Call("argmax", [x], [out], {"axis": 1})])
    assert ran.sector_bytes <= 1.01 * (x.nbytes + 32 * out.size)  # a result alone takes a sector
    half, places = values("bfloat16", (2000, 48)), np.zeros(48, np.int64)
    (ran,) = run_steps([Call("argmin", [half], [places], {"axis": 0})])
    assert ran.sector_bytes <= 1.35 * half.nbytes + 32 * places.size  # rows of 3 sectors, of which warps read 2 and 1


def test_it_runs_on_the_device_and_refuses_an_empty_axis() -> None:
    f = nnc.compile(lambda x: (nnp.argmax(x, -1), nnp.argmin(x), nnp.argmax(x * 2, 0)))
    x = values("float32", (17, 33))
    wanted, found = f(x), f(nnc.device_put(x, "ptx:0"))
    assert [np.asarray(y).tobytes() for y in found] == [np.asarray(y).tobytes() for y in wanted]
    assert "by their references" not in nnc.debug.explain(f)
    with pytest.raises(ShapeError, match="there is no element to name"):
        f(nnc.device_put(np.zeros((3, 0), np.float32), "ptx:0"))
