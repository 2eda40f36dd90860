"""Lines are written once, in front of the loops in which they do not change, and only where somebody reads them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels.builder import Carried, Code, Value, known_integer, known_number
from nnc.lower.kernels.native import Native

N, X, Y = (Value(f"%{name}", dtypes.int64) for name in ("n", "x", "y"))


def code() -> Code:
    return Code("KERNEL", [("ptr", "p"), ("i64", "n"), ("i64", "x"), ("i64", "y")])


def lines(code: Code) -> list[str]:
    code.ret(code.integer(0))
    return [line.strip() for line in code.text().splitlines()]


def count(found: list[str], part: str) -> int:
    return sum(part in line for line in found)


def test_an_expression_computed_twice_is_printed_once() -> None:
    c = code()
    for _ in range(2):
        c.store("%p", c.mul(X, Y))
    assert count(lines(c), "mul") == 1


def test_loads_are_not_shared_since_stores_may_lie_between() -> None:
    c = code()
    for _ in range(2):
        c.store("%p", c.add(c.load("%p", dtypes.int64), X))
    assert count(lines(c), "load i64, ptr %p") == 2


def test_invariant_values_stand_in_front_of_the_outermost_loop() -> None:
    c = code()
    with c.loop(0, N) as i, c.loop(0, N) as j:
        c.store("%p", c.add(c.mul(X, Y), c.mul(c.mul(i, X), j)))
    found = lines(c)
    first, second = (k for k, line in enumerate(found) if line.startswith("test"))
    products = [k for k, line in enumerate(found) if "mul i64" in line]
    assert len(products) == 3
    assert products[0] < first < products[1] < second < products[2]


def test_values_that_a_condition_guards_are_not_known_behind_it() -> None:
    c = code()
    with c.when(c.compare("lt", X, Y)):
        c.store("%p", c.mul(X, Y))
    c.store("%p", c.mul(X, Y))
    assert count(lines(c), "mul") == 2


def test_values_of_one_predecessor_of_a_block_are_not_known_there() -> None:
    c = code()
    there, after = c.label("there"), c.label("after")
    c.branch(c.compare("lt", X, Y), there, after)
    c.place(there)
    c.store("%p", c.mul(X, Y))
    c.jump(after)
    c.place(after)
    c.store("%p", c.mul(X, Y))
    assert count(lines(c), "mul") == 2


def test_divisions_by_possible_zeros_are_not_moved() -> None:
    c = code()
    with c.loop(0, N):
        c.store("%p", c.add(c.div(X, Y), c.div(X, c.integer(3))))
    found = lines(c)
    head = next(k for k, line in enumerate(found) if line.startswith("test"))
    assert found.index(next(line for line in found if "sdiv i64 %x, 3" in line)) < head
    assert found.index(next(line for line in found if "sdiv i64 %x, %y" in line)) > head


def test_unread_values_are_dropped_with_their_producers() -> None:
    c = code()
    c.mul(c.add(X, Y), X)
    assert count(lines(c), "add") == count(lines(c), "mul") == 0


def test_known_distances_come_last() -> None:
    c = code()
    place = c.offset(c.offset(c.offset("%p", 24), c.mul(c.add(X, c.integer(5)), c.integer(8))), 8)
    c.store(place, X)
    found = lines(c)
    assert count(found, "getelementptr") == 2
    assert count(found, "i64 72") == 1  # 24 + 5 · 8 + 8


def test_sums_and_products_of_known_numbers_are_numbers() -> None:
    c = code()
    assert c.add(c.mul(c.integer(6), c.integer(7)), c.integer(-2)).text == "40"
    assert c.sub(c.add(X, c.integer(3)), c.integer(3)) == X
    assert c.mul(X, c.integer(0)).text == "0"
    assert c.add(c.integer((1 << 63) - 1), c.integer(1)).text == str(-(1 << 63))


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, float("inf")])
@pytest.mark.parametrize("lanes", [0, 8])
def test_numbers_are_read_back_from_their_text(number: float, lanes: int) -> None:
    c = code()
    found = known_number(c.constant(number, dtypes.float32, lanes))
    assert found == number
    assert np.signbit(found) == np.signbit(number)
    assert known_number(Value("%v1", dtypes.float32, lanes)) is None
    assert known_integer(c.constant(7, dtypes.int32)) is None


def test_a_loop_of_one_round_is_none() -> None:
    c = code()
    with c.loop(3, 5, 2) as i:
        c.store("%p", i)
    found = lines(c)
    assert count(found, "store i64 3") == 1
    assert count(found, "br i1") == 0


def test_loops_within_loops_count() -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    c = Code("KERNEL", [("ptr", "p"), ("i64", "n")])
    with c.loop(0, N) as i, c.loop(i, N, 3) as j:
        at = c.offset("%p", c.mul(j, c.integer(8)))
        c.store(at, c.add(c.load(at, dtypes.int64), c.mul(i, i)))
    c.ret(c.integer(0))
    (function,) = jit.load([Native("\n".join([c.text(), *sorted(c.declarations), ""]))])
    out, wanted = np.zeros(20, np.int64), np.zeros(20, np.int64)
    for i in range(20):
        wanted[i::3] += i * i
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(function.address)(out.ctypes.data, len(out))
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_rounds_hand_values_on(known: bool, iterations: int) -> None:
    """s, last = 0, -1; for i: for j in range(i, 7, 2): s, last = s + i · j, j"""
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    c = Code("KERNEL", [("ptr", "p"), ("i64", "n")])
    total, last = Carried([c.integer(0)]), Carried([c.integer(-1)])
    with c.loop(0, iterations if known else N, carried=(total, last)) as i, c.loop(i, 7, 2, carried=(total, last)) as j:
        total.values = [c.add(total.values[0], c.mul(i, j))]
        last.values = [j]
    with c.loop(0, 2) as k:  # values known behind the loops are known within others
        c.store(c.offset("%p", c.mul(k, c.integer(16))), total.values[0])
        c.store(c.offset("%p", c.add(c.mul(k, c.integer(16)), c.integer(8))), last.values[0])
    c.ret(c.integer(0))
    (function,) = jit.load([Native("\n".join([c.text(), *sorted(c.declarations), ""]))])
    out, wanted = np.zeros(4, np.int64), [0, -1]
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(function.address)(out.ctypes.data, iterations)
    for i in range(iterations):
        for j in range(i, 7, 2):
            wanted = [wanted[0] + i * j, j]
    assert out.tolist() == 2 * wanted
