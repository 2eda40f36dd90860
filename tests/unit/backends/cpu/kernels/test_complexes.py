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
from tests.unit.backends.cpu.against_reference import LAYOUTS, Layout, cpu_kernel, dense, run, spaced, values

KINDS = ("complex64", "complex128")
NAMES = sorted(name for name in COMMANDS if (text := scalar.get(command(name), None)) and can_be_complex(text))
COMPUTED = [name for name in NAMES if name not in ("complex", "convert", "select", "product", "isnan", "soft_sign")]
SIZES = (0, 1, 7, 8, 17, 64)


def test_functions_of_complex_numbers_are_listed_where_expressions_are_chosen() -> None:
    assert _FUNCTIONS.keys() == COMPLEX_FUNCTIONS


@pytest.mark.parametrize(
    "expression",
    ["x", "exp(x)", "x ** 2", "x < y", "abs(x) == x", "1", "x + n", "~x", "x // y", "x and y", "x == y and z"],
)
def test_other_expressions_have_no_form_for_complex_numbers(expression: str) -> None:
    assert not can_be_complex(expression)


def numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Complex numbers, with zeros, infinities and NaN in either part."""
    real = "float32" if kind == "complex64" else "float64"
    x = np.empty(shape, kind)
    x.real, x.imag = values(real, shape, seed), values(real, shape, seed + 1)
    return x


def check(name: str, inputs: list[Any], params: dict[str, Any], layout: Layout = dense) -> None:
    """The kernel has the reference's numbers, but for the last bits; NaN and infinities stand in the same parts."""
    (found,) = run(name, inputs, params, layout)
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference[command(name)](*inputs, **params))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = 1e-6 if wanted.dtype in ("complex64", "float32") else 1e-14
    for part in ("real", "imag"):
        a, b = (np.asarray(getattr(x, part)).astype(np.float64) for x in (found, wanted))
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


def test_large_arrays_and_large_exponents_are_left_to_numpy() -> None:
    few, many = (nnc.graph.TensorSpec((n,), "complex64") for n in (4096, 4097))
    assert cpu_kernel("mul", (few, few), {}) is not None and cpu_kernel("mul", (many, many), {}) is None
    assert cpu_kernel("integer_pow", (few,), {"exponent": 100}) is None
    real = nnc.graph.TensorSpec((4,), "float32")
    assert cpu_kernel("mul", (real, real), {}) is None


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
