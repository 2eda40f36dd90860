"""Complex numbers are exported as pairs of real ones along a last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import nnc
import nnc.numpy as nnp
from nnc.errors import UnsupportedError
from tests.unit.onnx.writers.test_export import check

RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return (real(*shape) + 1j * real(*shape)).astype(np.complex64)


def filtered(x: Any, response: Any) -> Any:
    return nnp.fft.irfft(nnp.fft.rfft(x, axis=-1) * response, x.shape[-1], axis=-1)


def moves(x: Any) -> Any:
    joined = nnp.concatenate([x, nnp.stack([x[0], x[1] * 2])], axis=0)
    return (
        joined.T.reshape(-1)[::-1], nnp.pad(x, 1), nnp.roll(x, 1, axis=0), x[:, nnp.asarray([1, -1])], nnp.cumsum(x, axis=0),
        nnp.where(nnp.real(x) > 0, x, -x), nnp.mean(x), x.at[0].set(1j), x.at[0].add(2),
    )  # fmt: skip


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a filter": (filtered, (real(4, 8), draw(5))),
    "a filter of an odd length": (filtered, (real(4, 7), draw(4))),
    "gradient of a filter": (nnc.grad(lambda x, h: nnp.sum(filtered(x, h) ** 2), argnums=(0, 1)), (real(4, 8), draw(5))),
    "transforms of pictures": (lambda x: nnp.real(nnp.fft.ifft2(nnp.fft.fft2(x) * 2)), (real(4, 6),)),
    "inverse transform": (nnp.fft.ifftn, (draw(4, 3, 5),)),
    "transform in float64": (nnp.fft.fft, (draw(4, 6).astype(np.complex128),)),
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y, -x, x == y, x != y, x**2, x**-3), (draw(20), draw(20))),
    "powers": (lambda x, y: x**y, (draw(20), draw(20))),
    "quotients whose squares overflow": (nnp.divide, (draw(4), np.array([1e-25, 1e25j, 3e25 - 4j, -2e-25j], np.complex64))),
    "parts": (lambda x: (nnp.real(x), nnp.imag(x), nnp.conj(x), nnp.abs(x), nnp.angle(x), nnp.sign(x)), (draw(20),)),
    "tests": (
        lambda x: (nnp.isnan(x), nnp.isinf(x), nnp.isfinite(x)), (np.array([1j, np.nan, np.inf * 1j, 2], np.complex64),),
    ),
    "moves": (moves, (draw(3, 4),)),
    "products": (lambda x, y: (x @ y, nnp.vdot(x, x), nnp.convolve(x[0], y[0])), (draw(3, 4), draw(4, 5))),
    "conversions": (lambda x: (nnp.astype(x, "complex64"), nnp.astype(x + 0j, bool)), (real(5),)),
    "constants": (lambda x: x * nnp.full((8,), 2 + 1j) + nnp.zeros(8, "complex64") + np.arange(8) * 1j, (real(8),)),
    "a scan": (
        lambda a, x: nnc.scan(lambda c, t: (c * a + t, c * c), nnp.zeros(3, "complex64"), x), (draw(3) / 4, draw(5, 3)),
    ),
    "a loop of unknown length": (
        lambda x: nnc.while_loop(lambda c: nnp.abs(c)[0] < 10, lambda c: c * (1 + 0.5j), x), (draw(3),),
    ),
    "a branch": (lambda x: nnc.cond(nnp.real(x)[0] > 0, lambda x: x * 2, lambda x: x * 1j, x), (draw(3),)),
    "a gradient": (nnc.grad(lambda x: nnp.sum(nnp.abs(nnp.sin(x[1:] * x[:-1])) ** 2)), (draw(6),)),
    "random numbers": (lambda key: nnc.random.normal(key, (5,), "complex64"), (nnc.random.key(0),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_with_complex_numbers_is_the_same_in_onnxruntime_and_when_it_is_loaded_again(name: str) -> None:
    fun, args = PROGRAMS[name]
    check(fun, *args, tolerance=1e-4)


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin",
    "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "square", "reciprocal",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_complex_numbers_are_those_of_nnc(name: str) -> None:
    fun: Any = getattr(nnp, name)
    check(fun, np.concatenate([draw(40) * 2, draw(10) / 50]), tolerance=1e-4)


@pytest.mark.parametrize("opset", [17, 19, 23])
def test_transforms_are_written_in_each_version_that_has_them(opset: int) -> None:
    check(filtered, real(4, 8), draw(5), opset=opset)


@pytest.mark.parametrize(("axis", "name"), [(0, "batch"), (1, "points")])
def test_sizes_of_transforms_may_vary(axis: int, name: str) -> None:
    x = real(4, 8)
    data = check(lambda x: nnp.abs(nnp.fft.fft(x) * 2), x, dynamic_axes={"x": {axis: name}})
    other = real(9, 8) if axis == 0 else real(4, 12)
    (found,) = nnc.onnx.load(data)({"x": other})
    np.testing.assert_allclose(found, np.abs(np.fft.fft(other) * 2), rtol=1e-4, atol=1e-4)


def test_the_file_holds_no_pairs_that_nothing_reads() -> None:
    data = nnc.onnx.export(lambda x, y: nnp.abs(x * y + x), [draw(3), draw(3)])
    assert not [node for node in onnx.load_from_string(data).graph.node if node.op_type == "Concat"]


def test_complex_commands_without_a_form_are_listed_with_their_lines() -> None:
    def refused(x: Any) -> Any:
        return nnp.linalg.inv(x) + nnp.prod(x)

    with pytest.raises(
        UnsupportedError, match=r"(?s)2 commands.*test_complexes\.py.*(reduce_prod|solve): it has no form.*complex"
    ):
        nnc.onnx.export(refused, [draw(3, 3)])


def test_transforms_are_refused_in_older_versions() -> None:
    with pytest.raises(UnsupportedError, match="version 16 has no Fourier transforms"):
        nnc.onnx.export(filtered, [real(4, 8), draw(5)], opset=16)
