from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import COMMANDS, command, reference
from nnc.graph.registry import scalar
from nnc.lower.kernels.math.complexes import _FUNCTIONS
from nnc.lower.kernels.scalars import COMPLEX_FUNCTIONS, can_be_complex, parse
from nnc.lower.plan.stages import Step, View
from tests.unit.backends.cpu.against_reference import LAYOUTS, Layout, cpu_kernel, dense, run, spaced, values

KINDS = ("complex64", "complex128")
NAMES = sorted(name for name in COMMANDS if (text := scalar.get(command(name), None)) and can_be_complex(text))
COMPUTED = [
    name for name in NAMES if name not in ("complex", "convert", "select", "product", "isnan", "length", "soft_sign")
]
SIZES = (0, 1, 7, 8, 17, 64)


def test_functions_of_complex_numbers_are_listed_where_expressions_are_chosen() -> None:
    assert _FUNCTIONS.keys() == COMPLEX_FUNCTIONS


@pytest.mark.parametrize(
    "expression",
    ["x", "erf(x)", "x ** 2", "x < y", "abs(x) == x", "1", "x + n", "~x", "x // y", "x and y", "x == y and z"],
)
def test_other_expressions_have_no_form_for_complex_numbers(expression: str) -> None:
    assert not can_be_complex(expression)


def numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Complex numbers, with zeros, infinities and NaN in either part."""
    real = "float32" if kind == "complex64" else "float64"
    x = np.empty(shape, kind)
    x.real, x.imag = values(real, shape, seed), values(real, shape, seed + 1)
    return x


def draw_finite(n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(n)
    return (rng.normal(size=n) + 1j * rng.normal(size=n)).astype("complex64")


def check(name: str, inputs: list[Any], params: dict[str, Any], layout: Layout = dense) -> None:
    """The kernel has the reference's numbers, but for the last bits; NaN and infinities stand in the same parts.

    C99 leaves the sign of an infinity beside a NaN open.
    """
    (found,) = run(name, inputs, params, layout)
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference[command(name)](*inputs, **params))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = 1e-6 if wanted.dtype in ("complex64", "float32") else 1e-14
    beside_nan = np.isnan(np.asarray(wanted.real)) | np.isnan(np.asarray(wanted.imag))
    for part in ("real", "imag"):
        a, b = (np.asarray(getattr(x, part)).astype(np.float64) for x in (found, wanted))
        a, b = (np.where(beside_nan & np.isinf(x), np.inf, x) for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 10)


def operands_of(name: str, kind: str, shape: tuple[int, ...]) -> list[Any]:
    count = max((i + 1 for i, operand in enumerate("xyz") if operand in parse(scalar[command(name)]).names), default=0)
    return [numbers(kind, shape, 10 * i + len(shape)) for i in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPUTED)
def test_elementwise_commands_have_the_numbers_of_the_reference(name: str, kind: str) -> None:
    for n in SIZES:
        check(name, operands_of(name, kind, (n,)), {})
    check(name, operands_of(name, kind, ()), {})


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("name", ["add", "mul", "div", "abs", "equal", "real"])
def test_operands_and_results_may_lie_anyhow(name: str, layout: Layout) -> None:
    x, *others = operands_of(name, "complex64", (3, 5, 9))
    check(name, [layout(x), *others], {})
    check(name, [x, *others], {}, layout)
    for other in others:
        check(name, [np.broadcast_to(x[:1, :, :1], x.shape), layout(other)], {})
        check(name, [layout(other), np.broadcast_to(x[0, 0, 0], x.shape)], {}, spaced)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_choices_and_conversions_take_operands_of_other_dtypes(kind: str) -> None:
    real = "float32" if kind == "complex64" else "float64"
    for n in SIZES:
        x, y, mask = numbers(kind, (n,), 0), numbers(kind, (n,), 5), values("bool", (n,))
        check("complex", [values(real, (n,)), values(real, (n,), 1)], {})
        check("select", [mask, x, y], {})
        check("isnan", [x], {})
        for other in (*KINDS, "bool"):
            check("convert", [x], {"dtype": np.dtype(other)})
        for other in ("bool", "int8", "uint32", "int64", "float16", "float32", "float64"):
            check("convert", [values(other, (n,))], {"dtype": np.dtype(kind)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exponent", [-99, -3, -1, 0, 1, 2, 3, 4, 7, 99])
def test_integer_powers_are_those_of_numpy(exponent: int, kind: str) -> None:
    x = numbers(kind, (40,), 3)
    check("integer_pow", [x], {"exponent": exponent})


def test_large_exponents_are_left_to_numpy() -> None:
    few = nnc.graph.TensorSpec((4096,), "complex64")
    assert cpu_kernel("integer_pow", (few,), {"exponent": 100}) is None
    real = nnc.graph.TensorSpec((4,), "float32")
    assert cpu_kernel("mul", (real, real), {}) is None


FUNCTIONS = ("cos", "cosh", "exp", "log", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh")


def extremes(kind: str) -> np.ndarray[Any, Any]:
    """Numbers whose parts are zeros, infinities, NaN, and those at which exponentials and squares over- and underflow."""
    real = "float32" if kind == "complex64" else "float64"
    large = (1e38, 89.0) if kind == "complex64" else (1e300, 709.5)
    sizes = [0.0, 1e-30, 0.5, 1.0, np.pi / 2, 30.0, 800.0, *large, np.inf, np.nan]
    parts = np.array([sign * size for size in sizes for sign in (1.0, -1.0)], real)
    x = np.empty((len(parts), len(parts)), kind)
    x.real, x.imag = parts[:, None], parts
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_values_of_the_reference_at_extremes(name: str, kind: str) -> None:
    check(name, [extremes(kind)], {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_some_last_bits(name: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([[3.0], [1e-4]])
    x = (rng.normal(size=(2, 200)) * sizes + 1j * rng.normal(size=(2, 200)) * sizes[::-1]).astype(kind)
    (found,) = run(name, [x], {})
    with np.errstate(all="ignore"):
        wide = x.astype(np.clongdouble)
        wanted = 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, name)(wide)
    assert np.max(np.abs(found - wanted) / np.abs(wanted)) <= 4 * np.finfo(kind).eps


@pytest.mark.parametrize("kind", KINDS)
def test_logarithms_near_the_unit_circle_keep_their_digits(kind: str) -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    x = (np.exp(1j * angles) * (1 + 1e-6 * np.sin(5 * angles))).astype(kind)
    (found,) = run("log", [x], {})
    wanted = np.log(x.astype(np.clongdouble)).real
    assert np.all(np.abs(found.real - wanted) <= 4 * np.finfo(kind).eps * np.abs(wanted))


@pytest.mark.parametrize("n", [4095, 4097, 5003, 70001])
def test_long_rows_share_one_kernel_of_any_length(n: int) -> None:
    x = draw_finite(n)
    for name in ("exp", "mul", "abs", "equal"):
        operands = [x, x[::-1].copy()] if name in ("mul", "equal") else [x]
        check(name, operands, {})
        check(name, operands, {}, spaced)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_fills(kind: str) -> None:
    x = draw_finite(3 * 70 * 11).reshape(3, 70, 11).astype(kind)
    for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        check("reduce_sum", [x], {"axes": axes})
        check("reduce_sum", [x[:, ::-2]], {"axes": axes}, spaced)
    for shape in ((), (3, 5), (1000,)):
        check("full", [], {"shape": shape, "dtype": np.dtype(kind), "value": 1 - 2j}, spaced)


def test_the_text_of_long_rows_does_not_name_their_length() -> None:
    texts = set()
    for n in (5000, 5001, 90000):
        spec = nnc.graph.TensorSpec((n,), "complex64")
        view = View(0, spec, 0, (8,))
        native = cpu_kernel("exp", (spec,), {}).native(Step(command("exp"), (view,), (view,), {}))
        texts.add(native.text)
        assert native.numbers == (n,)
    assert len(texts) == 1


BODIES: dict[str, Any] = {
    "product": lambda c, x: c * x, "quotient": lambda c, x: c / (x + 2), "distance": lambda c, x: abs(x) + c * 0.5,
    "square": lambda c, x: c**2 * 0.1 + x, "conjugate": lambda c, x: nnp.conj(c) * x + 1j * nnp.real(x),
    "choice": lambda c, x: nnp.where(nnp.imag(c) > 0, c * x, c - x), "scaled": lambda c, x: x / (1 + nnp.abs(nnp.real(c))),
}  # fmt: skip


@pytest.mark.parametrize(("body", "shape"), [*product(BODIES, [(), (3,), (2, 9)])])
def test_loops_over_complex_numbers_run_without_python_and_agree(body: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    xs = (rng.normal(size=(11, *shape)) + 1j * rng.normal(size=(11, *shape))).astype(np.complex128)

    def loop(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            after = BODIES[body](c, x)
            return after, after * 2

        return nnc.scan(step, c, xs)

    want = loop(nnc.asarray(xs[0]), nnc.asarray(xs))
    f = nnc.compile(loop)
    for found in (f(xs[0], xs), nnc.vmap(loop, in_axes=(None, 0))(xs[0], xs[None])):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(np.asarray(a).reshape(b.shape), np.asarray(b), rtol=1e-12, atol=1e-12)

    def loss(c: Any, xs: Any) -> Any:
        return nnp.sum(nnp.abs(loop(c, xs)[1]) ** 2)

    for a, b in zip(nnc.compile(nnc.grad(loss, (0, 1)))(xs[0], xs), nnc.grad(loss, (0, 1))(xs[0], xs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "f", [nnp.real, nnp.imag, lambda z: z**3, lambda z: z * z, lambda z: nnc.numpy.real(z) + 1j * nnp.imag(z), nnp.conj]
)
def test_single_commands_on_few_numbers_are_numpys_and_compile_nothing(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.backends.cpu.compiler.jit.Jit.load", lambda *_: pytest.fail("a kernel was compiled"))
    for n in (3, 1000):
        z = nnc.asarray(numbers("complex64", (n,), 0))
        with np.errstate(all="ignore"):
            f(z)
