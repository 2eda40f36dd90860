"""Values that must be one of a few words or numbers: arrays are told apart from them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc.numpy as nnp
from nnc.errors import ArgumentError
from nnc.errors.errors import check_choice


@pytest.mark.parametrize("value", ["c", 3, np.array(["a", "b"]), np.zeros(2), nnp.ones((2, 3)), ["a"], {}])
def test_another_value_is_named_with_the_choices(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^f: kind is [\s\S]*Fix: use \"a\", \"b\" or None\.") as error:
        check_choice("f", "kind", value, ("a", "b", None))
    assert repr(value)[:6] in str(error.value)


def test_choices_are_taken() -> None:
    for value in ("a", None, 2, np.int64(2)):
        check_choice("f", "kind", value, ("a", None, 2))
    check_choice("f", "kind", "b", iter(("a", "b")))
