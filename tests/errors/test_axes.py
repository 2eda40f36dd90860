"""Mistakes with named axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, AxisError, DTypeError, ShapeError, TraceError, UnboundAxisError
from tests.errors.reports import reports

X = nnp.asarray([1.0, 2.0])


def over_i(fun: Any, x: Any = X) -> Any:
    return nnc.vmap(fun, axis_name="i")(x)


def test_an_axis_that_is_not_bound() -> None:
    with reports(UnboundAxisError, "nnc.psum", "no axis 'k'", "none is bound", "axis_name='k'"):
        nnc.psum(X, "k")
    with reports(UnboundAxisError, "nnc.pmean", "no axis 'k'", "bound are 'i', 'j'"):
        nnc.vmap(lambda y: over_j(lambda x: nnc.pmean(x * y, "k")), axis_name="i")(X)
    with pytest.raises(NameError):
        nnc.axis_index("i")


def over_j(fun: Any) -> Any:
    return nnc.vmap(fun, axis_name="j")(X)


def test_names_that_are_no_names() -> None:
    with reports(ArgumentTypeError, "nnc.vmap", "axis_name must be a string", "3"):
        nnc.vmap(lambda x: x, axis_name=3)
    with reports(ArgumentTypeError, "nnc.psum", "a name or a tuple of names", "0"):
        over_i(lambda x: nnc.psum(x, 0))
    with reports(ArgumentError, "nnc.psum", "one axis twice"):
        over_i(lambda x: nnc.psum(x, ("i", "i")))


def test_a_loop_that_places_leave_at_different_times_and_that_joins_values() -> None:
    with reports(TraceError, "nnc.while_loop", "the test varies over 'i'", "psum", "nnc.pmax(test, 'i')"):
        over_i(lambda x: nnc.while_loop(lambda c: c < 10, lambda c: c + nnc.psum(c, "i"), x))


def test_a_branch_that_not_all_places_take_and_that_joins_values() -> None:
    with reports(TraceError, "nnc.cond", "the index varies over 'i'", "all_gather"):
        over_i(lambda x: nnc.cond(x > 1, lambda: nnc.all_gather(x, "i").sum(), lambda: 0.0))
    nested = lambda x: nnc.scan(lambda c, _: (c + nnc.psum(x, "i"), None), 0.0, None, 2)[0]
    with reports(TraceError, "nnc.switch", "psum"):
        over_i(lambda x: nnc.switch(nnc.axis_index("i"), [lambda: nested(x), lambda: x]))


def test_rows_in_parts_where_all_are_joined() -> None:
    with reports(ArgumentError, "nnc.vmap", "chunk_size=1", "psum over 'i'", "leave chunk_size out"):
        nnc.vmap(lambda x: nnc.psum(x, "i"), axis_name="i", chunk_size=1)(X)
    chunked = nnc.vmap(lambda x: x * nnc.axis_index("i"), axis_name="i", chunk_size=1)(X)
    np.testing.assert_array_equal(np.asarray(chunked), [0, 2])


def test_permutations_that_are_none() -> None:
    for perm, words in (([(0, 1), (0, 0)], "twice"), ([(0, 2)], "not among the 2"), ([0, 1], "pairs of ints")):
        with reports(ArgumentError, "nnc.ppermute", words):
            over_i(lambda x, perm=perm: nnc.ppermute(x, "i", perm))


def test_axes_that_cannot_be_split() -> None:
    x = nnp.ones((2, 3, 4))
    with reports(ShapeError, "nnc.psum_scatter", "axis 0 has 3 elements", "it must have 2"):
        over_i(lambda x: nnc.psum_scatter(x, "i"), x)
    with reports(ShapeError, "nnc.psum_scatter", "a multiple of 2"):
        over_i(lambda x: nnc.psum_scatter(x, "i", tiled=True), x)
    with reports(ShapeError, "nnc.all_to_all", "axis 1 has 4 elements"):
        over_i(lambda x: nnc.all_to_all(x, "i", 1, 0), x)
    with reports(AxisError, "nnc.all_gather", "axis 5"):
        over_i(lambda x: nnc.all_gather(x, "i", axis=5), x)
    with reports(AxisError, "nnc.psum_scatter", "axis 2"):
        over_i(lambda x: nnc.psum_scatter(x, "i", scatter_dimension=2), x)


def test_extrema_of_complex_numbers() -> None:
    with reports(DTypeError, "pmax", "must be real"):
        over_i(lambda x: nnc.pmax(x + 1j, "i"))


def test_a_value_of_the_axis_used_after_it() -> None:
    kept: list[Any] = []
    over_i(lambda x: kept.append(nnc.axis_index("i")) or x)
    with reports(TraceError, "escaped tracer"):
        kept[0] + 1
