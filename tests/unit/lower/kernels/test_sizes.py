"""Kernels that take sizes as numbers give the bits of kernels that are printed for each size."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View
from tests.fuzz.programs.sized import SIZES, SizedProgram, rows

OTHER = 45  # the size of the program that each is compared with: its shapes differ in all that varies


def printed(program: SizedProgram, n: int) -> list[tuple[Step, Any]]:
    """Returns the steps of a program of n rows that have kernels, and these."""
    made = nnc.compile(partial(program, nnp)).lower(rows(n)).compile()._program
    return [(step, made.kernels[id(step)]) for step in made.bound.steps]


def sized(steps: Sequence[tuple[Step, Any]], others: Sequence[tuple[Step, Any]]) -> list[tuple[Step, Native, Native]]:
    """Returns the steps with kernels as today, and with kernels that take numbers."""
    pairs = []
    if [step.command for step, _ in steps] == [step.command for step, _ in others]:
        for (step, kernel), (other, _) in zip(steps, others, strict=True):
            native = kernel.native(replace(step, like=other)) if kernel.native is not None else None
            if native is not None:
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
    """Runs a kernel on memory of its own; returns the memory of all operands."""
    draws = np.random.default_rng(3)
    arrays = [array(view, draws) for view in (*step.inputs, *step.outputs)]
    state = [native.state(np.empty(native.scratch, np.uint8).ctypes.data).address] if native.state is not None else []
    words = [*[x.ctypes.data for x in arrays], *state, *native.numbers]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(words))(address)(*words) == 0
    return [x.base.tobytes() for x in arrays]


def check(pairs: Sequence[tuple[Step, Native, Native]]) -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    functions = jit.load([native for _, *natives in pairs for native in natives])
    for i, (step, static, native) in enumerate(pairs):
        expected = results(step, static, functions[2 * i].address)
        assert results(step, native, functions[2 * i + 1].address) == expected, (step, native.numbers)


@pytest.mark.parametrize("seed", range(40))
def test_a_kernel_of_any_size_gives_the_bits_of_a_kernel_of_its_size(seed: int) -> None:
    program = SizedProgram.draw(seed)
    others = printed(program, OTHER)
    check([pair for n in SIZES for pair in sized(printed(program, n), others)])
