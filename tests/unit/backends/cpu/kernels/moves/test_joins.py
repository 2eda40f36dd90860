"""Joins of any number of tensors are right, and no kernel's text grows with the number of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.kernels.moves.joins import join_many
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import TensorSpec, command
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE
from tests.unit.backends.cpu.against_reference import LAYOUTS, check, columns, dense, odd, spaced, values

NDArray = np.ndarray[Any, Any]
MANY = 40  # operands: more than are copied one after the other
TENSORS = 150  # of programs of which the kernels are counted
OPERANDS, LINES = 128, 1000  # of one kernel's text, at most
KINDS = ("bool", "bfloat16", "float32", "int64", "complex128")


# -- values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_many_parts_in_any_layout_give_the_reference_bits(kind: str, axis: int) -> None:
    shapes = [[3, 4, 5] for _ in range(MANY)]
    for k, shape in enumerate(shapes):
        shape[axis] = k % 4  # some are empty
    parts = [values(kind, tuple(shape), k) for k, shape in enumerate(shapes)]
    mixed = [LAYOUTS[k % len(LAYOUTS)](x) for k, x in enumerate(parts)]
    for inputs in (parts, mixed, [columns(x) for x in parts]):
        for target in LAYOUTS:
            check("concatenate", inputs, {"axis": axis}, target)


@pytest.mark.parametrize("kind", KINDS)
def test_many_parts_of_one_element_give_the_reference_bits(kind: str) -> None:
    parts = [values(kind, (1, 1), k) for k in range(MANY)]
    for axis in (0, 1):
        check("concatenate", parts, {"axis": axis})
        check("concatenate", [odd(x) for x in parts], {"axis": axis}, spaced)


def test_many_empty_parts_make_an_empty_result() -> None:
    check("concatenate", [np.zeros((0, 3), np.float32)] * MANY, {"axis": 0})


@pytest.mark.parametrize("layout", [dense, columns, spaced])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_large_parts_are_dealt_out_to_threads(layout: Callable[[NDArray], NDArray], axis: int) -> None:
    small, large = (2, 3, 5), [2, 3, 5]
    large[axis] = 60_001
    parts = [layout(values("float64", tuple(large), k) if k in (7, 30) else np.ones(small)) for k in range(MANY)]
    before = nnc.set_num_threads(3)
    try:
        check("concatenate", parts, {"axis": axis})
    finally:
        nnc.set_num_threads(before)


def test_more_arrays_are_joined_eagerly_than_a_c_function_takes() -> None:
    parts = [np.full((3, 1 + k % 3), k, np.float32) for k in range(1100)]
    joined = nnp.concatenate([nnc.asarray(x) for x in parts], axis=1)
    np.testing.assert_array_equal(np.asarray(joined), np.concatenate(parts, axis=1))


def test_many_inputs_are_joined_with_computed_parts() -> None:
    xs = [np.full(1 + k % 3, k / 100, np.float32) for k in range(100)]
    found = nnc.compile(lambda xs: nnp.concatenate([x if k % 3 else nnp.sqrt(x) for k, x in enumerate(xs)]))(xs)
    np.testing.assert_array_equal(found, np.concatenate([x if k % 3 else np.sqrt(x) for k, x in enumerate(xs)]))


# -- texts ---------------------------------------------------------------------------------------------------------------


def text(parts: int, length: int, axis: int = 0) -> str:
    spec, out = ((3, n) if axis else (n, 3) for n in (length, length * parts))
    views = [View.whole(k, TensorSpec(shape, np.dtype(np.float32))) for k, shape in enumerate([spec] * parts + [out])]
    return join_many(Step(command("concatenate"), tuple(views[:-1]), tuple(views[-1:]), {"axis": axis}), HERE).text


@pytest.mark.parametrize("axis", [0, 1])
def test_the_text_of_a_join_has_the_same_instructions_for_any_number_of_parts(axis: int) -> None:
    few, many = (text(parts, 5, axis).splitlines() for parts in (MANY, 5000))
    assert len(few) == len(many) < 80


def test_the_table_of_a_join_does_not_grow_with_the_bytes_of_parts() -> None:
    assert text(MANY, 10**8).count("i64") < 20_000


def norm_clipped(optimizer: Any) -> Callable[[int], tuple[Any, Any]]:
    def case(n: int) -> tuple[Any, Any]:
        params = [np.ones([(5,), (3, 4), (17,), ()][k % 4], np.float32) for k in range(n)]
        chained = nnc.optim.chain(nnc.optim.clip_by_global_norm(1.0), optimizer)

        def step(params: Any, state: Any, grads: Any) -> Any:
            updates, state = chained.update(grads, state, params)
            return nnc.optim.apply_updates(params, updates), state

        return step, (params, chained.init(params), params)

    return case


def scalars(n: int) -> list[NDArray]:
    return [np.asarray(k, np.float32) for k in range(n)]


CASES: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "stack": lambda n: (nnp.stack, (scalars(n),)),
    "stack of computed and given": lambda n: (
        lambda xs: nnp.stack([nnp.exp(x) if k % 2 else x for k, x in enumerate(xs)]),
        (scalars(n),),
    ),
    "concatenate": lambda n: (nnp.concatenate, ([np.ones(1 + k % 7, np.float32) for k in range(n)],)),
    "columns": lambda n: (
        lambda xs: nnp.concatenate(xs, axis=1),
        ([np.ones((3, 1 + k % 7), np.float32) for k in range(n)],),
    ),
    "sum": lambda n: (lambda xs: sum(xs[1:], xs[0]), (scalars(n),)),
    "sgd": norm_clipped(nnc.optim.sgd(0.1)),
    "adam": norm_clipped(nnc.optim.adam(1e-3)),
}


def operands(native: Native) -> int:
    """The pointers that a kernel takes one by one."""
    (signature,) = (line for line in native.text.splitlines() if line.startswith("define i64 @KERNEL("))
    return signature.count("ptr %")


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_of_a_program_takes_as_many_operands_as_there_are_tensors(name: str) -> None:
    function, arguments = CASES[name](TENSORS)
    made = lower(nnc.make_graph(function)(*arguments), Options(cache_folder=None), choose_kernel, compiler())
    assert made.code is not None
    natives = {native.name: native for native in made.code.natives.values()}
    assert max(map(operands, natives.values())) <= OPERANDS < TENSORS
    assert max(native.text.count("\n") for native in natives.values()) <= LINES
