"""Templates give the program that is printed for a size, at every size for which they say that they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.compiled.templates import Templates
from nnc.run.native_program import NativeCode, ProgramAbi
from nnc.run.program import Program
from tests.fuzz.programs.sized import SizedProgram, rows

pytestmark = pytest.mark.unguarded  # programs on guarded memory are made for each size

SIZES = (40, 46, 52, 43, 49, 55, 61, 67, 30, 58, 64, 70, 33, 36, 75, 41, 63, 77)
WIDTH = 16
W = np.linspace(-1, 1, WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
BIAS = np.zeros(WIDTH, np.float32)


def train(x: Any) -> Any:
    def loss(w: Any) -> Any:
        h = nn.relu(nn.layer_norm(x @ w + BIAS, np.ones(WIDTH, np.float32), BIAS))
        return -nnp.mean(nn.log_softmax(h @ w)[:, 0])

    value, gradient = nnc.value_and_grad(loss)(nnp.asarray(W))
    return value, W - 0.1 * gradient


def attend(x: Any) -> Any:
    q, k, v = (nnp.reshape(x @ (W * scale), (2, -1, 2, 8)) for scale in (0.5, 0.7, 0.9))
    return nn.dot_product_attention(q, k, v, is_causal=True)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "training step": (train, lambda n: (rows(n),)),
    "attention": (attend, lambda n: (rows(2 * n),)),
    "derivative of attention": (nnc.grad(lambda x: nnp.sum(attend(x) ** 2)), lambda n: (rows(2 * n),)),
    "sum of rows": (lambda x: nnp.sum(nnp.tanh(x) * x, axis=1), lambda n: (rows(n),)),
    "cond": (lambda x: nnc.cond(nnp.sum(x) > 0, lambda x: x * 2, lambda x: x - 1, x), lambda n: (rows(n),)),
    "joined": (lambda x, y: nnp.concatenate([x * 2, y], axis=1), lambda n: (rows(n), rows(n + 1)[1:])),
    "two axes": (lambda x: nnp.sum(nnp.tanh(x), axis=1), lambda n: (np.ones((n, 3 * n % 41 + 20, 4), np.float32),)),
}


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in nnc.tree.leaves(tree)]


def programs(fun: Any, make: Callable[[int], tuple[Any, ...]], sizes: Iterable[int]) -> dict[int, Program]:
    """Calls a compiled function at some sizes; returns the programs that a template made."""
    found = {}
    for n in sizes:
        fun(*make(n))
        program = fun._last.program
        if program.like is not None and "scheduling" not in dict(fun._last.timings.rows):
            found[n] = program
    return found


def templates(fun: Any) -> list[Templates]:
    lines = [line for kin in fun._families._kinds.values() for line in kin._lines.values()]
    return [each for line in lines for each in line._blueprints.values()]


def check_is_printed(program: Program) -> None:
    """The program that a template made has the numbers, the text and the interface that printing gives."""
    code = program.code
    assert code is not None
    whole = NativeCode(ProgramAbi.of(program.planned), code.parts, code.compiler)
    whole.expect(False)
    mine, theirs = code.printed[False].text, whole.printed[False].text
    assert mine.numbers == theirs.numbers and mine.text == theirs.text
    assert code.outside._replace(constants=()) == whole.outside._replace(constants=())
    for x, y in zip(code.outside.constants, whole.outside.constants, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_template_gives_the_program_that_is_printed(name: str) -> None:
    fun, make = FUNCTIONS[name]
    shared, alone = nnc.compile(fun), nnc.compile(fun, dynamic_axes={})
    found = programs(shared, make, SIZES)
    assert len(found) >= 3, [each.problem for each in templates(shared)]
    for n, program in found.items():
        check_is_printed(program)
        for mine, wanted in zip(leaves(shared(*make(n))), leaves(alone(*make(n))), strict=True):
            assert mine.shape == wanted.shape and mine.dtype == wanted.dtype
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_templates_of_generated_programs_give_the_printed_programs(seed: int) -> None:
    shared = nnc.compile(partial(SizedProgram.draw(seed), nnp))
    for program in programs(shared, lambda n: (rows(n),), SIZES).values():
        check_is_printed(program)
    assert all("another size" not in each.problem for each in templates(shared))


def test_calls_of_a_size_that_a_template_made_ask_for_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = nnc.compile(train)
    found = programs(shared, lambda n: (rows(n),), SIZES)

    def refuse(program: Program) -> Any:
        raise AssertionError("the steps were asked for")

    monkeypatch.setattr(Program, "planned", property(refuse))
    for n in found:
        for _ in range(4):
            shared(rows(n))


def test_a_program_of_a_template_shows_its_plan() -> None:
    shared = nnc.compile(train)
    found = programs(shared, lambda n: (rows(n),), SIZES)
    n = next(iter(found))
    alone = nnc.compile(train, dynamic_axes={}).lower(rows(n)).compile()
    shared.cache_clear()
    assert found[n].memory_plan.output_bytes == alone.memory_plan.output_bytes
    assert found[n].memory_plan.arena_bytes <= 1.02 * alone.memory_plan.arena_bytes + 1024
    assert "fused" in found[n].as_text()


def test_a_program_with_a_kernel_for_each_size_has_no_template() -> None:
    shared = nnc.compile(lambda x: nnp.sort(x * 2, axis=0))
    assert not programs(shared, lambda n: (rows(n),), SIZES[:8])
    assert all(each.problem for each in templates(shared))


def test_a_loop_has_no_template() -> None:
    shared = nnc.compile(lambda x: nnc.scan(lambda c, r: (c * 0.5 + r, c), nnp.zeros(WIDTH), x))
    assert not programs(shared, lambda n: (rows(n),), SIZES[:8])
    assert all("loop" in each.problem for each in templates(shared))
