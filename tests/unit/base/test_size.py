"""Sizes that are not known yet compute like integers, and note every decision that depends on them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.base.size import Evaluation, Size, Sizes, decide, derive, hint

NUMBERS = st.integers(-9, 9)
POSITIVE = st.integers(1, 60)
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, lambda x, y: x // 7, lambda x, y: x % 5, lambda x, y: -x + y,
    lambda x, y: abs(x), lambda x, y: max(x, y), lambda x, y: min(x, y), lambda x, y: x if x > y else y * 2,
    lambda x, y: x // (abs(y) + 1), lambda x, y: x % (abs(y) + 2), lambda x, y: 1000 // (abs(y) + 3), lambda x, y: x**2,
    lambda x, y: divmod(x, 3)[1], lambda x, y: (x + 1) * 4 // 4, lambda x, y: 0 if x == y else 1,
]  # fmt: skip


def computed(program: list[tuple[int, int, int]], values: list[Any], constants: list[int]) -> list[Any]:
    """Runs a program of binary operations on earlier results, some of them constants."""
    found = [*values, *constants]
    for number, i, j in program:
        found.append(BINARY[number](found[i % len(found)], found[j % len(found)]))
    return found


PROGRAMS = st.lists(st.tuples(st.integers(0, len(BINARY) - 1), st.integers(0, 20), st.integers(0, 20)), max_size=12)


@given(PROGRAMS, st.lists(NUMBERS, max_size=3), st.tuples(POSITIVE, POSITIVE), st.tuples(POSITIVE, POSITIVE))
def test_where_all_guards_hold_polynomials_agree_with_integers(
    program: list[tuple[int, int, int]], constants: list[int], here: tuple[int, int], there: tuple[int, int]
) -> None:
    sizes = Sizes()
    found = computed(program, [sizes.give(n) for n in here], constants)
    assert list(map(hint, found)) == computed(program, list(here), constants)
    at_home = sizes.at(here)
    assert at_home is not None and list(map(at_home.of, found)) == computed(program, list(here), constants)
    elsewhere = sizes.at(there)
    if elsewhere is not None:
        assert list(map(elsewhere.of, found)) == computed(program, list(there), constants)


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "index": operator.index,
    "range": lambda n: len(range(n)),
    "float": float,
    "quotient": lambda n: n / 2,
    "sum with a float": lambda n: n + 0.5,
    "comparison with a float": lambda n: n < 10.5,
    "text": str,
    "format": lambda n: f"{n}",
    "a row of zeros": lambda n: np.zeros(n).shape[0],
    "NumPy's int": lambda n: np.array([n], np.int64)[0],
    "a list, repeated": lambda n: [0] * n,
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_code_that_sees_the_value_fixes_it(name: str) -> None:
    sizes = Sizes()
    n = sizes.give(8)
    assert CONVERSIONS[name](n) == CONVERSIONS[name](8)
    assert sizes.at([8]) is not None
    assert sizes.at([9]) is None


def test_a_decision_holds_where_the_same_one_would_be_taken() -> None:
    sizes = Sizes()
    n = sizes.give(64)
    assert n * 4 >= 128 and n % 32 == 0 and n != 1
    assert [m for m in range(1, 200) if sizes.at([m]) is not None] == [32, 64, 96, 128, 160, 192]


def test_a_hint_decides_nothing() -> None:
    sizes = Sizes()
    assert hint(sizes.give(8) * 3) == 24 and hint(7) == 7
    assert sizes.at([1000]) is not None


def test_equal_polynomials_need_no_guard() -> None:
    sizes = Sizes()
    n = sizes.give(8)
    assert 4 * n == n + n * 3 and hash(4 * n) == hash(n + 3 * n) and (n * 6) // 3 == 2 * n and (n * n) // n == n
    assert (n + 1) // (n + 1) == 1 and type((n + 1) // (n + 1)) is int and (n * n + 3 * n + 2) // (n + 1) == n + 2
    assert sizes.at([5]) is not None


def test_sizes_of_two_lowerings_are_never_equal() -> None:
    """Shared tables, such as that of specs, must not hand a size to another lowering, whose guards would miss its decisions."""
    one, other = Sizes().give(8), Sizes().give(8)
    assert one != other and {one: 1}.get(other) is None


def test_numpys_integers_leave_arithmetic_to_sizes() -> None:
    sizes = Sizes()
    product = np.int64(3) * sizes.give(8)
    assert isinstance(product, Size) and product.value == 24


def test_a_function_that_is_no_polynomial_is_computed_again() -> None:
    sizes = Sizes()
    n = sizes.give(8)
    found = derive(max, n, 20) + derive(max, n, 20)
    assert hint(found) == 40 and derive(max, 3, 5) == 5 and hint(derive(operator.mul, n, 3)) == 24
    assert [evaluation(sizes, [m]).of(found) for m in (5, 20, 21)] == [40, 40, 42]


def evaluation(sizes: Sizes, given: list[int]) -> Evaluation:
    found = sizes.at(given)
    assert found is not None
    return found


def test_a_function_of_sizes_that_divides_by_0_serves_none() -> None:
    sizes = Sizes()
    n = sizes.give(8)
    assert hint(100 // (n - 4)) == 25
    assert sizes.at([4]) is None and sizes.at([5]) is not None


def test_a_choice_is_a_guard() -> None:
    sizes = Sizes()
    n = sizes.give(8)

    def longest(shape: tuple[int, ...]) -> int:
        return shape.index(max(shape))

    assert decide(longest, (3, n, 5)) == 1 and decide(longest, (3, 4, 5)) == 2
    assert [m for m in range(1, 8) if sizes.at([m]) is not None] == [5, 6, 7]


def test_sizes_know_whether_a_guard_fixes_one_that_was_given() -> None:
    sizes = Sizes()
    n, m = sizes.give(8), sizes.give(16)
    assert n * 2 == m and n % 4 == 0 and not sizes.fixes(2)
    assert int(m) == 16 and sizes.fixes(2) and not sizes.fixes(1)
