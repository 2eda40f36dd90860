"""`x.at[...]`: its methods beyond the ones that tests of indexing cover, and the arguments of JAX's methods."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, DTypeError

X = np.arange(6.0).reshape(2, 3)


def test_reading_out_of_range_gives_the_value_asked_for():
    x = nnp.asarray(X)
    places = np.array([0, 5, -1, -9])
    assert x.at[:, places].get(mode="fill", fill_value=-7.0).tolist() == [[0, -7, 2, -7], [3, -7, 5, -7]]
    assert x.at[7].get(mode="fill", fill_value=1).tolist() == [1, 1, 1]
    assert x.at[1, 2].get(mode="fill", fill_value=1) == 5
    assert np.isnan(np.asarray(x.at[7].get(mode="fill"))).all()
    assert nnp.arange(3).at[np.array([1, 9])].get(mode="fill", fill_value=-1).tolist() == [1, -1]
    read = nnc.compile(lambda x, i: x.at[i].get(mode="fill", fill_value=9.0))
    assert read(x[0], places).tolist() == [0, 9, 2, 9]
    assert nnc.vmap(read)(x, np.stack([places, places])).tolist() == [[0, 9, 2, 9], [3, 9, 5, 9]]
    slope = nnc.grad(lambda x: x.at[places].get(mode="fill", fill_value=9.0).sum())
    assert slope(x[0]).tolist() == [1, 0, 1]


def test_a_value_to_fill_with_needs_its_mode_and_must_fit():
    with pytest.raises(ArgumentError, match="fill_value is given, but mode is 'error'"):
        nnp.arange(3).at[0].get(fill_value=1)
    with pytest.raises(DTypeError, match="do not fit"):
        nnp.arange(3).at[0].get(mode="fill", fill_value=0.5)


@pytest.mark.parametrize("name", ["set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max"])
def test_promises_about_the_indices_change_no_result(name):
    places, values = np.array([0, 2]), np.array([2.0, 3.0])
    plain = getattr(nnp.asarray(X[1]).at[places], name)(values)
    promised = getattr(nnp.asarray(X[1]).at[places], name)(values, unique_indices=True, indices_are_sorted=True)
    assert plain.tolist() == promised.tolist()
    with np.errstate(all="ignore"):
        want = X[1].copy()
        old = want[places]
        want[places] = {
            "set": values, "add": old + values, "subtract": old - values, "multiply": old * values, "mul": old * values,
            "divide": old / values, "power": old**values, "min": np.minimum(old, values), "max": np.maximum(old, values),
        }[name]  # fmt: skip
    assert plain.tolist() == want.tolist()
    nnc.testing.check_grads(
        lambda x, v: getattr(nnp.asarray(x).at[places], name)(v, unique_indices=True),
        (X[1] + 0.5, values - 0.2),
        order=2,
    )


def test_apply_and_get_take_the_promises_too():
    x = nnp.asarray(X[0])
    assert x.at[1:].apply(nnp.square, unique_indices=True, indices_are_sorted=True).tolist() == [0, 1, 4]
    assert x.at[1:].get(unique_indices=True, indices_are_sorted=True).tolist() == [1, 2]
