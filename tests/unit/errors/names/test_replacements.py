"""The code of rows gives the results of the functions that it stands for, on the cases of tests/unit/errors/names/cases.py."""

from __future__ import annotations

import ast
import json
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors.names import TABLES, code_of
from nnc.optim import GradientTransformation, apply_updates
from tests.unit.errors.names.cases import CASES, COMMON, Case
from tests.unit.errors.names.record import RECORDED, STEPS, numbers, original, parameters

EXPECTED = json.loads(RECORDED.read_text(encoding="utf-8"))
ROWS = [(source, name, case) for (source, name), case in CASES.items()]
IDS = [f"{source}.{name}" for source, name, _ in ROWS]


def convert(value: Any) -> Any:
    """Operands as arrays of nnc."""
    if isinstance(value, list):
        return [convert(part) for part in value]
    return nnp.asarray(value) if isinstance(value, np.ndarray) else value


def replaced(code: str, case: Case) -> list[Any]:
    """The result of the code of a row; a bare name gets the arguments of the case."""
    names = {name: convert(value) for name, value in {**COMMON, **case.operands}.items()} | {"nnc": nnc, "np": np}
    tree = ast.parse(code.removeprefix("x = "), mode="eval").body
    if isinstance(tree, ast.Attribute) and code.startswith("nnc."):
        arguments = case.call.rpartition("()(")[2] if "()(" in case.call else case.call.partition("(")[2]
        if ")(" in arguments:
            arguments = arguments.rpartition(")(")[2]
        arguments = arguments.removesuffix("[0]").removesuffix(".resolve_conj()")
        code = f"{code}({arguments}"
    found = eval(code.removeprefix("x = "), names)
    if isinstance(found, GradientTransformation):
        weight, gradients = parameters(nnp.asarray)
        state = found.init(weight)
        for gradient in gradients:
            updates, state = found.update(gradient, state, weight)
            weight = apply_updates(weight, updates)
        return numbers(weight)
    return numbers([found(k) for k in range(STEPS)] if callable(found) else found)


@pytest.mark.parametrize(("source", "name", "case"), ROWS, ids=IDS)
def test_the_code_of_a_row_gives_the_numbers_of_the_other_library(source: str, name: str, case: Case) -> None:
    found, expected = replaced(code_of(TABLES[source][name]), case), EXPECTED[f"{source}.{name}"]
    assert [shape for shape, _ in found] == [shape for shape, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.filterwarnings("ignore")  # of names that these libraries have deprecated, and users still have
@pytest.mark.parametrize("library", ["torch", "optax"])
def test_recorded_numbers_are_those_of_the_other_library(library: str) -> None:
    pytest.importorskip(library)
    for source, name, case in ROWS:
        if source.startswith("torch") == (library == "torch"):
            for (_, found), (_, stored) in zip(original(source, case), EXPECTED[f"{source}.{name}"], strict=True):
                np.testing.assert_allclose(found, stored, rtol=2e-5, atol=2e-6, err_msg=f"{source}.{name}")


def test_every_recorded_number_has_its_case() -> None:
    assert sorted(EXPECTED) == sorted(IDS)
