"""Commands on complex numbers on a GPU: the numbers of the references, wherever operands lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import BY_NAME
from nnc.graph import command, reference
from tests.unit.backends.cpu.against_reference import LAYOUTS, odd, values
from tests.unit.backends.cuda.launching import Call, run_steps
from tests.unit.backends.cuda.unfused import call_of, check_calls

NDArray = np.ndarray[Any, Any]
PLACES = [layout for layout in LAYOUTS if layout is not odd]
SHAPES = ((), (1,), (7, 40), (3, 0), (300,), (5, 3, 4))
RNG = np.random.default_rng(0)


def numbers(kind: str, shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Numbers whose parts have all signs, some of them zeros."""
    draw = np.random.default_rng(seed)
    parts = [np.round(draw.normal(size=shape) * 4, 1) * draw.integers(0, 2, shape) for _ in range(2)]
    return np.asarray(parts[0] + 1j * parts[1]).astype(kind)


def operands_of(name: str, kind: str, shape: tuple[int, ...]) -> list[NDArray]:
    x, y = numbers(kind, shape), numbers(kind, shape, 1)
    if name == "complex":
        return [x.real.copy(), y.imag.copy()]
    if name == "select":
        return [np.asarray(RNG.integers(0, 2, shape), bool), x, y]
    return [x, y] if name in ("add", "sub", "mul", "div", "equal", "not_equal") else [x]


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "name", ["complex", "real", "imag", "conj", "neg", "add", "sub", "equal", "not_equal", "select", "isnan"]
)
def test_parts_have_the_bits_of_the_reference(name: str, kind: str) -> None:
    calls = []
    for turn, shape in enumerate(SHAPES):
        for layout in PLACES:
            inputs = [PLACES[(turn + i) % len(PLACES)](x) for i, x in enumerate(operands_of(name, kind, shape))]
            calls.append(call_of(name, inputs, {}, layout))
    check_calls(calls)


@pytest.mark.parametrize(("kind", "tolerance"), [("complex64", 1e-6), ("complex128", 1e-15)])
@pytest.mark.parametrize("name", ["mul", "div", "square", "abs", "reciprocal"])
def test_products_are_near_the_reference(name: str, kind: str, tolerance: float) -> None:
    calls = []
    for shape in ((400,), (7, 40)):
        inputs = operands_of(name, kind, shape)
        if name in ("div", "reciprocal"):
            inputs[-1] = np.where(inputs[-1] == 0, 1, inputs[-1]).astype(kind)
        calls += [call_of(name, [layout(x) for x in inputs], {}) for layout in PLACES]
    check_calls(calls, tolerance)


@pytest.mark.parametrize(("kind", "tolerance"), [("complex64", 1e-6), ("complex128", 1e-14)])
@pytest.mark.parametrize("name", ["cos", "cosh", "exp", "log", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh"])
def test_functions_are_near_the_reference(name: str, kind: str, tolerance: float) -> None:
    x = (RNG.normal(size=60) * 3 + 1j * RNG.normal(size=60)).astype(kind)
    check_calls([call_of(name, [x], {})], tolerance)


def test_a_quotient_by_zero_is_that_of_the_reference() -> None:
    x, zero = np.array([1 + 2j, -1 + 0j, 0j, 1j]), np.zeros(4, np.complex128)
    call = call_of("div", [x, zero], {})
    with np.errstate(all="ignore"):
        wanted = x / zero
    run_steps([call])
    np.testing.assert_array_equal(call.outputs[0], wanted)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_integer_powers_are_numpys_products(kind: str) -> None:
    parts = [0.0, -0.0, 1.0, -1.5, 2.0, 0.3, 1e-20, 1e20, np.inf, -np.inf, np.nan]
    x = np.array([complex(a, b) for a in parts for b in parts], kind)
    calls = [call_of("integer_pow", [x], {"exponent": n}) for n in (*range(-9, 10), 20, -33, 99, -99)]
    run_steps(calls)
    for call in calls:
        with np.errstate(all="ignore"):
            wanted = reference[command("integer_pow")](x, **call.params)
        for found, right in zip((call.outputs[0].real, call.outputs[0].imag), (wanted.real, wanted.imag), strict=True):
            np.testing.assert_array_equal(found, right, f"{call.params}")


def test_large_powers_of_complex_numbers_run_by_the_reference() -> None:
    x = numbers("complex128", (5,)) / 4
    f = nnc.compile(lambda x: (x**2, x**-3, x**100))
    found = f(*nnc.device_put((x,), "ptx:0"))
    assert "integer_pow (1)" in nnc.debug.explain(f)
    for each, n in zip(found, (2, -3, 100), strict=True):
        np.testing.assert_allclose(np.asarray(each), x**n, 1e-12)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_conversions_keep_the_value(kind: str) -> None:
    sources = [numbers("complex64", (30,)), numbers("complex128", (30,))]
    sources += [values(name, (30,)) for name in ("bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64")]
    calls = [call_of("convert", [x], {"dtype": BY_NAME[kind]}) for x in sources]
    calls.append(call_of("convert", [numbers(kind, (30,))], {"dtype": BY_NAME["bool"]}))
    check_calls(calls)


def test_constants_and_sums_have_both_parts() -> None:
    made = [call_of("full", [], {"shape": (3, 4), "dtype": BY_NAME["complex128"], "value": 1 - 2j})]
    run_steps(made)
    assert (made[0].outputs[0] == 1 - 2j).all()
    calls = []
    for kind in ("complex64", "complex128"):
        for layout in PLACES:
            x = layout(numbers(kind, (60, 7)))
            calls += [call_of("reduce_sum", [x], {"axes": axes}) for axes in ((0,), (1,), (0, 1))]
    check_calls(calls, 1e-5)


def test_a_result_may_lie_where_an_operand_does() -> None:
    x, y = numbers("complex64", (9, 5)), numbers("complex64", (9, 5), 1)
    wanted = x + y
    run_steps([Call("add", [x, y], [x], {})])
    np.testing.assert_array_equal(x, wanted)


def test_numbers_are_read_and_written_whole() -> None:
    x, y = numbers("complex64", (64, 128)), numbers("complex64", (64, 128), 1)
    (ran,) = check_calls([call_of("add", [x, y], {})])
    assert ran.sector_bytes <= 1.01 * 3 * x.nbytes and ran.counts[0].instructions <= 21 * x.size


def test_they_run_on_the_device() -> None:
    def turn(x: Any, angle: Any) -> Any:
        z = nnp.conj(x * (nnp.cos(angle) + 1j * nnp.sin(angle)))
        return nnp.real(z) - nnp.imag(z), nnp.abs(z), z.sum(0), nnp.full((3,), 1 + 2j)

    f = nnc.compile(turn)
    x, angle = numbers("complex64", (6, 5)), RNG.normal(size=5).astype(np.float32)
    found = f(*nnc.device_put((x, angle), "ptx:0"))
    assert "by their references" not in nnc.debug.explain(f)
    wanted = f(x, angle)
    for each, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(each), np.asarray(other), 3e-6, 3e-6)
