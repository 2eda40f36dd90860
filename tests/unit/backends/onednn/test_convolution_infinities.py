"""Convolutions whose operands hold an infinity give infinities and NaN where the references give them.

Instructions for shorter floats add products two at a time, and pair the last of an odd number with zeros of their own. Places in
the padding are no terms of the sums, so that an infinity at the other side makes no NaN there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn.library import library
from nnc.base import dtypes
from nnc.commands.windows import window_shape
from nnc.graph import command, reference

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

NDArray = np.ndarray[Any, Any]
COMMANDS = ("conv", "conv_input_grad", "conv_weight_grad")
DTYPES = ("float32", "bfloat16", "float16")
CASES = 30
COMPILED = 10


@dataclass(frozen=True)
class Problem:
    """A command with operands of small whole numbers, whose sums are exact in float32, and some infinities."""

    name: str
    operands: tuple[NDArray, NDArray]
    params: dict[str, Any]

    @classmethod
    def draw(cls, rng: np.random.Generator, name: str, dtype: str, position: int) -> Problem:
        """A problem with up to three infinities in the operand at `position`."""
        axes, images, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
        ins, outs = (int(rng.choice([1, 2, 3, 5, 8, 16, 17])) for _ in range(2))
        kernel, stride, dilation = (tuple(map(int, rng.integers(1, n, axes))) for n in (4, 3, 3))
        padding = tuple((int(low), int(high)) for low, high in rng.choice([0, 0, 1, 2], (axes, 2)))
        spatial = tuple(
            (k - 1) * d + int(rng.integers(1, (12, 8, 4)[axes - 1])) for k, d in zip(kernel, dilation, strict=True)
        )
        places = window_shape("conv", spatial, kernel, stride, padding, dilation)
        last = bool(rng.integers(2))
        x, y = (
            (images, *sizes, channels * groups) if last else (images, channels * groups, *sizes)
            for channels, sizes in ((ins, spatial), (outs, places))
        )
        w = (outs * groups, ins, *kernel)
        params: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "channels_last": last,
        }  # fmt: skip
        shapes = {"conv": (x, w), "conv_input_grad": (y, w), "conv_weight_grad": (x, y)}[name]
        more = {"conv": {}, "conv_input_grad": {"spatial": spatial}, "conv_weight_grad": {"kernel": kernel}}[name]
        first, second = (rng.integers(1, 4, shape) * rng.choice([-1, 1], shape) for shape in shapes)
        operands = first.astype(dtypes.BY_NAME[dtype]), second.astype(dtypes.BY_NAME[dtype])
        holder = operands[position]
        holder.reshape(-1)[rng.integers(holder.size, size=int(rng.integers(1, 4)))] = rng.choice([np.inf, -np.inf])
        return cls(name, operands, params | more)

    def run(self, a: Any, b: Any) -> Any:
        return command(self.name)(a, b, **self.params)

    def by_reference(self) -> NDArray:
        return np.asarray(reference[command(self.name)](*self.operands, **self.params))

    def check(self, found: Any, expected: NDArray) -> None:
        """Infinities and NaN stand at the same places; other numbers are equal up to two roundings."""
        wide, wanted = (np.asarray(array).astype(np.float64) for array in (found, expected))
        shapes = [operand.shape for operand in self.operands]
        np.testing.assert_allclose(wide, wanted, rtol=2**-7, atol=2**-7, err_msg=f"{shapes} {self.params}")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("position", [0, 1], ids=["first operand", "second operand"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_infinity_stays_one(name: str, dtype: str, position: int, compiled: bool) -> None:
    for seed in range(COMPILED if compiled else CASES):
        problem = Problem.draw(np.random.default_rng([seed, position]), name, dtype, position)
        run = nnc.compile(problem.run) if compiled else problem.run
        problem.check(run(*map(nnc.asarray, problem.operands)), problem.by_reference())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_infinity_anywhere_in_pictures_of_three_colours_stays_one(name: str, dtype: str) -> None:
    params = {"stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    x, w, y = (2, 3, 7, 7), (5, 3, 3, 3), (2, 5, 3, 3)
    shapes = {"conv": (x, w), "conv_input_grad": (y, w), "conv_weight_grad": (x, y)}[name]
    more = {"conv": {}, "conv_input_grad": {"spatial": (7, 7)}, "conv_weight_grad": {"kernel": (3, 3)}}[name]
    rng = np.random.default_rng(0)
    plain = [rng.integers(1, 4, shape).astype(dtypes.BY_NAME[dtype]) for shape in shapes]
    for position in (0, 1):
        for place in range(0, plain[position].size, 3):
            first, second = (operand.copy() for operand in plain)
            (first, second)[position].reshape(-1)[place] = np.inf
            problem = Problem(name, (first, second), params | more)
            problem.check(problem.run(*map(nnc.asarray, problem.operands)), problem.by_reference())


@pytest.mark.parametrize("position", [0, 1], ids=["first operand", "second operand"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_infinity_stays_one_below_an_epilogue(dtype: str, position: int) -> None:
    """Bias, another tensor, a function and a maximum with 0, joined with the convolution where the library can."""
    for seed in range(COMPILED):
        rng = np.random.default_rng([seed, position, 1])
        problem = Problem.draw(rng, "conv", dtype, position)
        product = problem.by_reference()
        axis = product.ndim - 1 if problem.params["channels_last"] else 1
        shape = [product.shape[axis] if i == axis else 1 for i in range(product.ndim)]
        bias, residual = (rng.integers(-3, 4, n).astype(product.dtype) for n in (shape, product.shape))

        def run(a: Any, b: Any, bias: Any, residual: Any, problem: Problem = problem) -> Any:
            y = problem.run(a, b) + bias
            return nnp.abs(y), y + residual, nnp.maximum(y, 0), y * residual

        y = product.astype(np.float64) + bias.astype(np.float64)
        wide = residual.astype(np.float64)
        with np.errstate(invalid="ignore"):
            expected = np.abs(y), y + wide, np.maximum(y, 0), y * wide
        for index, wanted in enumerate(expected):
            one = nnc.compile(lambda *operands, i=index: run(*operands)[i])
            found = one(*map(nnc.asarray, (*problem.operands, bias, residual)))
            tolerance = 2**-5 * max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
            np.testing.assert_allclose(
                np.asarray(found).astype(np.float64), wanted, rtol=2**-5, atol=tolerance, err_msg=str(problem.params)
            )
