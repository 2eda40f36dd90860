"""Random programs of nested branches and loops give each thread the value that it computes alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.testing.devices.ptx.launching import kernel, launch

COUNT = 96
BITS = 2**32 - 1

# A program is a list of statements: ("set", factor, added), ("if", bit, then, other), ("while", turns, body), and ("skip", bit),
# which goes on behind the innermost loop, or ends the program.
leaf = st.tuples(st.just("set"), st.integers(1, 9), st.integers(0, 99)) | st.tuples(st.just("skip"), st.integers(0, 5))
programs = st.recursive(
    st.lists(leaf, max_size=3),
    lambda inner: st.lists(
        leaf
        | st.tuples(st.just("if"), st.integers(0, 5), inner, inner)
        | st.tuples(st.just("while"), st.integers(1, 4), inner),
        max_size=3,
    ),
    max_leaves=12,
)


class Skip(Exception):  # noqa: N818
    """Leaves the innermost loop."""


def run(program: list[Any], x: int) -> int:
    """Runs a program for one thread."""
    for statement in program:
        if statement[0] == "set":
            x = (x * statement[1] + statement[2]) & BITS
        elif statement[0] == "if":
            x = run(statement[2] if x >> statement[1] & 1 else statement[3], x)
        elif statement[0] == "skip":
            if x >> statement[1] & 1:
                raise Skip(x)
        else:
            for _ in range(x % 4 + statement[1]):
                try:
                    x = run(statement[2], x)
                except Skip as skip:
                    x = skip.args[0]
                    break
    return x


def print_ptx(program: list[Any], numbers: Iterator[int], out: str, depth: int = 0) -> str:
    """Prints a program on %r1 with branches; every loop has a counter of its own."""
    text = ""
    for statement in program:
        n = next(numbers)
        if statement[0] == "set":
            text += f"mad.lo.u32 %r1, %r1, {statement[1]}, {statement[2]};\n"
        elif statement[0] == "skip":
            text += f"bfe.u32 %r2, %r1, {statement[1]}, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra {out};\n"
        elif statement[0] == "if":
            text += f"bfe.u32 %r2, %r1, {statement[1]}, 1; setp.ne.u32 %p1, %r2, 0; @!%p1 bra $OTHER{n};\n"
            text += print_ptx(statement[2], numbers, out, depth) + f"bra.uni $JOIN{n};\n$OTHER{n}:\n"
            text += print_ptx(statement[3], numbers, out, depth) + f"$JOIN{n}:\n"
        else:
            counter = f"%r{10 + depth}"
            text += f"and.b32 {counter}, %r1, 3; add.u32 {counter}, {counter}, {statement[1]};\n$LOOP{n}:\n"
            text += print_ptx(statement[2], numbers, f"$END{n}", depth + 1)
            text += f"sub.u32 {counter}, {counter}, 1; setp.ne.u32 %p1, {counter}, 0; @%p1 bra $LOOP{n};\n$END{n}:\n"
    return text


@given(program=programs, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_each_thread_takes_its_own_way(program: list[Any], seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 2**32, COUNT)
    body = f"""
        ld.global.b64 %rd1, [%a0]; cvt.u32.u64 %r1, %rd1;
        {print_ptx(program, itertools.count(), "$OUT")}
        $OUT: bar.sync 0; shfl.sync.idx.b32 %r3, %r1, 7, 31, -1;
        cvt.u64.u32 %rd2, %r1; st.global.b64 [%a1], %rd2; cvt.u64.u32 %rd3, %r3; st.global.b64 [%a2], %rd3;
    """
    result, seventh = np.zeros(COUNT, np.int64), np.zeros(COUNT, np.int64)
    launch(kernel(body, 3), 1, COUNT, [x], [result, seventh])
    expected = []
    for value in x:
        try:
            expected.append(run(program, int(value)))
        except Skip as skip:
            expected.append(skip.args[0])
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(seventh, np.repeat(expected[7::32], 32))
