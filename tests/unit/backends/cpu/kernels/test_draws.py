"""Kernels of the functions behind random draws: the bits of the reference for operands of any layout, and when they run."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from nnc import random
from nnc.backends.cpu.compiler import jit
from nnc.backends.cpu.kernels import draws as kernels
from nnc.base import dtypes
from nnc.commands import draws
from nnc.graph import Command, reference
from tests.figures import HERE
from tests.unit.random.test_same_bits import DRAWS

FLOATS = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)
COMMANDS = [
    (target, 1, dtype)
    for target in (draws.portable_log, draws.portable_log1p, draws.portable_exp, draws.normal_quantile, draws.tan_of_turns)
    for dtype in FLOATS
] + [
    *((draws.truncated_normal_quantile, 3, dtype) for dtype in FLOATS),
    (draws.unit_of_words, 1, dtypes.uint64), (draws.geometric_quantile, 2, dtypes.float64),
    (draws.poisson_log_mass, 2, dtypes.float64), (draws.binomial_log_mass, 3, dtypes.float64),
]  # fmt: skip
SHAPES = [(), (0,), (1,), (2,), (17,), (129,), (3, 43), (1024,), (5, 1031)]
needs_compiler = pytest.mark.skipif(jit.compiler() is None, reason="no compiler")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run from the first call on."""
    monkeypatch.setattr(kernels, "WORTH", -1)


def numbers(rng: np.random.Generator, target: Command, place: int, shape: Any, dtype: Any) -> Any:
    """Operands over the range of a function, its edges among them."""
    if dtype == dtypes.uint64:
        return rng.integers(0, 2**64, shape, np.uint64)
    x = np.asarray(rng.uniform(0, 1, shape))
    if target is draws.truncated_normal_quantile:
        x = (x, x * 60 - 50, x * 60 - 20)[place]
    elif target in (draws.poisson_log_mass, draws.binomial_log_mass):
        x = (np.floor(x * 20), np.floor(x * 9) + 20, x * 0.98 + 0.01)[place]
    elif target in (draws.portable_log, draws.portable_exp):
        x = np.exp(x * 20 - 10)
    elif target is draws.tan_of_turns:
        x = x - 0.5
    x = x.astype(dtype)
    edges = np.asarray([0, 1, -0.0, 0.5, np.inf, np.nan])
    if x.size > 100 and target in (draws.portable_log, draws.portable_log1p, draws.normal_quantile, draws.portable_exp):
        x.reshape(-1)[: len(edges)] = edges.astype(dtype)
    return x


def layouts(x: Any) -> Any:
    """The same shape, laid out in several ways: dense, with gaps, backwards, by columns, one value for all."""
    yield x
    if x.ndim:
        yield np.repeat(x, 2, -1)[..., ::2]
        yield x[..., ::-1]
        yield np.asfortranarray(x)
        if x.size:
            yield np.broadcast_to(x.reshape(-1)[-1], x.shape)


def same_bits(got: Any, wanted: Any) -> bool:
    """Whether two arrays are equal to the bit, signs of 0 included; one NaN is as good as another."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    word, nothing = f"u{wanted.itemsize}", np.isnan(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype or not (np.isnan(got) == nothing).all():
        return False
    return (
        bool((got.view(word) == wanted.view(word))[~nothing].all()) if got.ndim else same_bits(got[None], wanted[None])
    )


@needs_compiler
@pytest.mark.parametrize(("target", "arity", "dtype"), COMMANDS, ids=str)
def test_kernels_have_the_bits_of_the_reference(compiled: None, target: Command, arity: int, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        operands = [list(layouts(numbers(rng, target, i, shape, dtype))) for i in range(arity)]
        choices = zip(*operands, strict=True) if arity == 1 else itertools.islice(itertools.product(*operands), 7)
        for chosen in choices:
            assert same_bits(target(*chosen), reference[target](*chosen)), (shape, [x.strides for x in chosen])


@needs_compiler
@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_the_same_bits_before_and_after_kernels_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for worth in (10**12, -1):
        monkeypatch.setattr(kernels, "WORTH", worth)
        drawn.append(np.asarray(DRAWS[name](random.key(9), lambda x: np.asarray(x, np.float32))))
    assert drawn[0].tobytes() == drawn[1].tobytes()


def test_few_elements_are_left_to_the_reference_until_compiling_would_have_been_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = kernels._DrawKernel(draws.portable_log, partial(kernels._native, machine=HERE))
    calls: list[int] = []
    monkeypatch.setattr(run, "_compiled", lambda inputs, outputs, params: calls.append(inputs[0].size))
    x = np.ones(3)
    for _ in range(kernels.WORTH // kernels.CALL + 2):
        run([x], [np.empty(3)], {})
    assert 0 < len(calls) < 4
    run([x.astype(np.float32)], [np.empty(3, np.float32)], {})  # another kernel
    large = np.ones(kernels.WORTH + 1, np.float32)
    run([large], [np.empty_like(large)], {})
    assert calls[-1] == large.size and 3 not in calls[4:]
