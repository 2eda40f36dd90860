"""Records are values, as frozen dataclasses are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.records import record


@record
class Pair:
    """Two fields that count, and one that does not."""

    first: int
    second: str = "b"
    note: Any = field(default=None, compare=False, repr=False)


@record
class Single:
    """One field, and a text of its own."""

    value: float

    def __repr__(self) -> str:
        return "single"


def test_records_with_equal_fields_are_equal_and_have_one_hash() -> None:
    assert Pair(1) == Pair(1, "b", note=[3]) != Pair(2)
    assert hash(Pair(1)) == hash(Pair(1, "b", note=[3]))
    assert Single(1.0) != Pair(1) and Single(2.0) == Single(2.0) and hash(Single(2.0)) == hash(Single(2.0))


def test_a_record_shows_its_fields_or_the_text_of_its_class() -> None:
    assert repr(Pair(1)) == "Pair(first=1, second='b')"
    assert repr(Single(1.0)) == "single"


def test_records_are_replaced_copied_and_pickled() -> None:
    assert replace(Pair(1), first=2) == Pair(2)
    assert copy.copy(Pair(1)) == pickle.loads(pickle.dumps(Pair(1))) == Pair(1)
    assert [f.name for f in fields(Pair)] == ["first", "second", "note"]


def test_records_have_no_further_attributes() -> None:
    assert not hasattr(Pair(1), "__dict__")
    match Pair(1):
        case Pair(first, second):
            assert (first, second) == (1, "b")


def test_values_that_users_are_given_refuse_assignments() -> None:
    compiled = nnc.compile(nnp.sin).lower(np.ones(3)).compile()
    given = [
        nnp.finfo("float32"),
        nnp.iinfo("int8"),
        nnc.dim("n"),
        compiled.memory_plan,
        compiled.cost,
        nnp.ones(2).at,
    ]
    for value in given:
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, 1)
