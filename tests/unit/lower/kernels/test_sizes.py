"""Kernels that take sizes as numbers give the bits of kernels that are printed for each size."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels import native as native_texts
from nnc.lower.kernels.native import Native, Texts
from nnc.lower.kernels.sizes import Numbers
from nnc.lower.plan.stages import Step, View
from tests.fuzz.programs.sized import SIZES, SizedProgram, rows

OTHER = 45  # the size of the program that each is compared with: its shapes differ in all that varies


def printed(function: Callable[..., Any], *args: Any) -> list[tuple[Step, Any]]:
    """Returns the steps of a compiled function, and their kernels."""
    made = nnc.compile(function).lower(*args).compile()._program
    return [(step, made.kernels[id(step)]) for step in made.bound.steps]


def sized(steps: Sequence[tuple[Step, Any]], others: Sequence[tuple[Step, Any]]) -> list[tuple[Step, Native, Native]]:
    """Returns the steps with kernels that take no numbers, and with those that may."""
    pairs = []
    if [step.command for step, _ in steps] == [step.command for step, _ in others]:
        for (step, kernel), (other, _) in zip(steps, others, strict=True):
            native = kernel.native(replace(step, like=other)) if kernel.native is not None else None
            if native is not None and native.state is None:  # of no library
                pairs.append((step, kernel.native(step), native))
    return pairs


def array(view: View, draws: np.random.Generator) -> np.ndarray[Any, Any]:
    """Returns numbers that lie as a view says."""
    low, high = view.extent
    dtype = view.spec.dtype
    memory = np.empty((high - low) // dtype.itemsize, dtype)
    memory[...] = draws.normal(size=memory.shape) if dtypes.is_float(dtype) else draws.integers(0, 2, memory.shape)
    return np.ndarray(view.spec.shape, dtype, memory, view.offset - low, view.strides)


def results(step: Step, native: Native, address: int) -> list[bytes]:
    """Runs a kernel on memory of its own; returns this memory."""
    draws = np.random.default_rng(3)
    arrays = [array(view, draws) for view in (*step.inputs, *step.outputs)]
    words = [*[x.ctypes.data for x in arrays], *native.numbers]
    if native.packed:
        table = (ctypes.c_int64 * len(words))(*native.numbers, *words[: len(arrays)])
        words = [ctypes.addressof(table)]
    (parameters,) = re.findall(r"define i64 @KERNEL\((.*)\)", native.text)
    assert parameters.count(",") + bool(parameters) == len(words)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(words))(address)(*words) == 0
    return [x.base.tobytes() for x in arrays]


def check(pairs: Sequence[tuple[Step, Native, Native]]) -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    assert any(native.numbers or native.packed for _, _, native in pairs)
    functions = jit.load([native for _, *natives in pairs for native in natives])
    for i, (step, static, native) in enumerate(pairs):
        expected = results(step, static, functions[2 * i].address)
        assert results(step, native, functions[2 * i + 1].address) == expected, (step, native.numbers)


@pytest.mark.parametrize("seed", range(40))
def test_a_kernel_of_any_size_gives_the_bits_of_a_kernel_of_its_size(seed: int) -> None:
    program = partial(SizedProgram.draw(seed), nnp)
    others = printed(program, rows(OTHER))
    check([pair for n in SIZES for pair in sized(printed(program, rows(n)), others)])


def by_length(x: Any) -> Any:
    return (
        nnp.tanh(x * np.float32(x.shape[0])),
        nnp.sum(x) / x.shape[0],
        nnp.ones(30) * x.shape[0],
        nnp.ones(3) / x.shape[0],
    )


def test_constants_that_depend_on_a_size_are_numbers_too() -> None:
    others = printed(by_length, rows(OTHER))
    pairs = [pair for n in (33, 34, 64, 65, 77, 100) for pair in sized(printed(by_length, rows(n)), others)]
    check(pairs)
    assert len({native.text for _, _, native in pairs}) < len(pairs) / 2


def test_numbers_are_found_again_without_printing() -> None:
    """Two sizes on one side of all decisions share a text, and the second is not printed."""
    numbers = Numbers()
    n = numbers.give(40)
    assert n > 30 and -(-n // 16) == 3 and str(n * 4) == "%n0" and str(n * 4 - 1) == "%n1" and str(4 * n) == "%n0"
    assert numbers.printed == (160, 159)
    assert numbers.again([41]) == (164, 163)
    assert numbers.again([20]) is None and numbers.again([60]) is None
    assert int(n) == 40 and numbers.again([41]) is None


def drawn(seed: int, *shape: int, dtype: str = "float32") -> Any:
    numbers = np.random.default_rng(seed).integers(-9, 9, shape)
    return nnp.asarray(numbers if dtype == "int32" else numbers / 8).astype(dtype)


PRODUCTS: dict[str, Callable[..., Any]] = {
    "rows": lambda n, draw: (plain, draw(0, n, 70), draw(1, 70, 40)),
    "rows, turned": lambda n, draw: (turned_left, draw(0, 70, n), draw(1, 70, 40)),
    "rows, columns turned": lambda n, draw: (turned_right, draw(0, n, 70), draw(1, 40, 70)),
    "columns": lambda n, draw: (plain, draw(0, 40, 70), draw(1, 70, n)),
    "terms": lambda n, draw: (turned_left, draw(0, n, 70), draw(1, n, 40)),
    "terms of few columns": lambda n, draw: (turned_left, draw(0, n, 70), draw(1, n, 3)),
    "batches": lambda n, draw: (plain, draw(0, n, 20, 30), draw(1, n, 30, 25)),
    "rows of batches": lambda n, draw: (plain, draw(0, 4, n, 30), draw(1, 30, 25)),
    "rows of one column": lambda n, draw: (plain, draw(0, n, 70), draw(1, 70, 1)),
    "all": lambda n, draw: (turned_right, draw(0, n, 48), draw(1, n, 48)),
    "with an epilogue": lambda n, draw: (dense, draw(0, n, 70), draw(1, 70, 40), draw(2, 40)),
    "large, with an epilogue": lambda n, draw: (dense, draw(0, n, 512), draw(1, 512, 512), draw(2, 512)),
    "long": lambda n, draw: (plain, draw(0, n, 2100), draw(1, 2100, 40)),
}


def plain(x: Any, y: Any) -> Any:
    return x @ y


def turned_left(x: Any, y: Any) -> Any:
    return x.T @ y


def turned_right(x: Any, y: Any) -> Any:
    return x @ y.T


def dense(x: Any, w: Any, b: Any) -> Any:
    return nnp.tanh(x @ w + b) * 2


CASES = [(name, "float32") for name in PRODUCTS] + [("rows", name) for name in ("float64", "float16", "int32")]


@pytest.mark.parametrize(("name", "dtype"), [*CASES, ("terms", "float64"), ("long", "float64")])
def test_a_product_of_any_size_gives_the_bits_of_a_product_of_its_size(name: str, dtype: str) -> None:
    make = partial(PRODUCTS[name], draw=partial(drawn, dtype=dtype))
    others = printed(*make(OTHER))
    check([pair for n in (*SIZES, 130, 1040) for pair in sized(printed(*make(n)), others)])


def attend(q: Any, k: Any, v: Any, *more: Any, **options: Any) -> Any:
    names = dict(zip(options.pop("names", ()), more, strict=True))

    def total(*operands: Any) -> Any:
        return nnp.sum(nnp.sin(nn.dot_product_attention(*operands, **names, **options)))

    return nnc.value_and_grad(total, argnums=(0, 1, 2))(q, k, v)


ATTENTIONS: dict[str, Callable[..., Any]] = {
    "of itself": lambda n, draw: (attend, draw(0, 2, n, 3, 20), draw(1, 2, n, 3, 20), draw(2, 2, n, 3, 20)),
    "causal": lambda n, draw: (partial(attend, is_causal=True), *(draw(i, 2, n, 2, 32) for i in range(3))),
    "of fixed queries": lambda n, draw: (attend, draw(0, 2, 37, 2, 16), draw(1, 2, n, 2, 16), draw(2, 2, n, 2, 24)),
    "of fixed keys": lambda n, draw: (attend, draw(0, 2, n, 4, 16), draw(1, 2, 70, 2, 16), draw(2, 2, 70, 2, 16)),
    "with a mask": lambda n, draw: (
        partial(attend, names=("mask",)), *(draw(i, 1, n, 2, 16) for i in range(3)), draw(3, 1, 2, n, n) > 0
    ),
    "with a bias": lambda n, draw: (
        partial(attend, names=("bias",)), *(draw(i, 1, n, 2, 16) for i in range(3)), draw(3, 1, 1, 1, n)
    ),
    "of batches": lambda n, draw: (attend, *(draw(i, n, 19, 2, 16) for i in range(3))),
    "in float16": lambda n, draw: (attend, *(draw(i, 1, n, 2, 16, dtype="float16") for i in range(3))),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_of_any_size_gives_the_bits_of_attention_of_its_size(name: str) -> None:
    make = partial(ATTENTIONS[name], draw=drawn)
    others = printed(*make(OTHER))
    check([pair for n in (*SIZES, 130, 250, 1100) for pair in sized(printed(*make(n)), others)])


MOVES: dict[str, Callable[..., Any]] = {
    "turned": lambda n, draw: (lambda x: nnp.transpose(x).copy(), draw(0, n, 70)),
    "turned rows": lambda n, draw: (lambda x: nnp.transpose(x, (0, 2, 1)).copy(), draw(0, 3, 40, n)),
    "reversed": lambda n, draw: (lambda x: x[::-1].copy(), draw(0, n, 70)),
    "a part": lambda n, draw: (lambda x: x[:, 1 : n // 2 + 1].copy(), draw(0, 50, n)),
    "joined": lambda n, draw: (lambda x, y: nnp.concatenate([x, y, x], 1), draw(0, 20, n), draw(1, 20, 9)),
    "many joined": lambda n, draw: (lambda *xs: nnp.concatenate(xs), *(draw(i, n, 3) for i in range(40))),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_any_size_gives_the_bits_of_a_move_of_its_size(name: str) -> None:
    make = partial(MOVES[name], draw=drawn)
    others = printed(*make(OTHER))
    check([pair for n in (*SIZES, 400) for pair in sized(printed(*make(n)), others)])


WITHOUT_NUMBERS: dict[str, Callable[..., Any]] = {
    "sums so far": lambda x: nnp.cumsum(x, axis=0),
    "sorted": lambda x: nnp.sort(x, axis=0),
    "places": lambda x: nnp.argmax(x, axis=0),
    "taken": lambda x: x[nnp.asarray([0, 2, 1])],
    "padded": lambda x: nnp.pad(x, ((1, 2), (0, 0))),
    "set": lambda x: x.at[nnp.asarray([0, 2, 1])].add(1.0),
    "pooled": lambda x: nn.max_pool(x[None, None], (2, 2)),
    "transformed": lambda x: nnp.abs(nnp.fft.rfft(x, axis=0)),
    "largest": lambda x: nnp.sort(x.ravel())[-3:],
    "without rows": lambda x: x[:0] + x[:0],
}


@pytest.mark.parametrize("name", WITHOUT_NUMBERS)
def test_a_kernel_that_takes_no_numbers_is_printed_for_its_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that is printed without another size."""
    others = printed(WITHOUT_NUMBERS[name], rows(OTHER))
    for n in (33, 64):
        steps = printed(WITHOUT_NUMBERS[name], rows(n))
        monkeypatch.setattr(native_texts, "PRINTED", Texts())  # that knows none of these kernels
        for _, static, native in sized(steps, others):
            assert native.numbers or native.text == static.text


def picked(x: Any, indices: Any, mode: str = "error") -> Any:
    return nnp.tanh(nnp.take_along_axis(x, indices[:, None] % x.shape[1], 1) * 2), nnp.take(
        x, indices % 9, 0, mode=mode
    )


def slope_of_picked(x: Any, indices: Any) -> Any:
    return nnc.grad(lambda x: nnp.sum(nnp.take_along_axis(nnp.exp(x), indices[:, None] % 5, 1)))(x)


def slope_of_rows(x: Any, indices: Any) -> Any:
    return nnc.grad(lambda x: nnp.sum(nnp.sin(x[indices % 9])))(x)


INDEXED: dict[str, Callable[..., Any]] = {
    "rows": lambda n, draw: (picked, draw(0, n, 20), draw(1, 2 * n, dtype="int32")[:n]),
    "rows, filled": lambda n, draw: (partial(picked, mode="fill"), draw(0, n, 20), draw(1, n, dtype="int32")),
    "rows, clipped": lambda n, draw: (partial(picked, mode="clip"), draw(0, n, 20), draw(1, n, dtype="int32")),
    "rows of a table": lambda n, draw: (lambda x, i: x[i % 9] * 2, draw(0, 9, 20), draw(1, n, dtype="int32")),
    "columns": lambda n, draw: (lambda x, i: nnp.tanh(x[:, i % 9]), draw(0, 20, n), draw(1, n, dtype="int32")),
    "slope of places": lambda n, draw: (slope_of_picked, draw(0, n, 20), draw(1, n, dtype="int32")),
    "slope of rows": lambda n, draw: (slope_of_rows, draw(0, 9, 20), draw(1, n, dtype="int32")),
    "slope of many rows": lambda n, draw: (slope_of_rows, draw(0, n, 20), draw(1, 30, dtype="int32")),
    "sought": lambda n, draw: (nnp.searchsorted, nnp.sort(draw(0, n)), draw(1, 40)),
    "sought rows": lambda n, draw: (nnp.searchsorted, nnp.sort(draw(0, 40)), draw(1, n, 3)),
}


@pytest.mark.parametrize("name", INDEXED)
def test_places_in_any_size_give_the_bits_of_those_in_their_size(name: str) -> None:
    make = partial(INDEXED[name], draw=drawn)
    others = printed(*make(OTHER))
    check(
        [pair for n in (*SIZES, 130) if n > 1 for pair in sized(printed(*make(n)), others)]
    )  # memory holds places 0 and 1
