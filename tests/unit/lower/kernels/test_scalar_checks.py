"""A wrong scalar expression is refused when its command is registered, with the reason; each that is accepted can be printed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nnc
from nnc.base import dtypes
from nnc.commands.elementwise import ANY, BITS, COMPLEX, FLOAT, INTEGER, NUMERIC, Accepts, elementwise
from nnc.errors import RegistryError
from nnc.graph import COMMANDS, Attribute, Command, attribute, register
from nnc.graph.registry import scalar
from nnc.graph.rules import Rules
from nnc.lower.kernels.scalar_checks import check_scalar
from nnc.lower.kernels.scalars import scalar as print_scalar
from tests.unit.lower.kernels.running import Elementwise, run

pytestmark = pytest.mark.usefixtures("own_registries")
OF_INTEGERS: Accepts = (lambda dtype: dtype in (dtypes.int32, dtypes.uint8), "int32 or uint8")


@pytest.mark.parametrize("target", sorted(scalar, key=str), ids=str)
def test_the_expressions_of_nnc_are_right(target: Command) -> None:
    check_scalar(target, scalar[target])


WRONG: list[tuple[str, int, Accepts, str, str]] = [
    (
        "sin(π * fmod(x, 2))",
        1,
        FLOAT,
        "`π` is neither an operand nor a parameter .* these: x",
        "write numbers as digits",
    ),
    (
        "sin(3.141592653589793 * fmod(x, 2))",
        1,
        FLOAT,
        "float16, `fmod` is given the number 2",
        "may stand beside operators",
    ),
    ("sin(2)", 1, FLOAT, "`sin` is given the number 2", "give functions operands"),
    ("x + y", 1, FLOAT, "`y` is neither an operand nor a parameter .* these: x", "name operands x, y and z"),
    ("x * scale", 1, FLOAT, "`scale` is neither an operand", "name operands"),
    ("sine(x)", 1, FLOAT, "there is no function `sine`", "use sin"),
    ("hypot(x)", 1, FLOAT, "`hypot` takes 2 operands, and is given 1", "give it 2 operands"),
    ("sin(x, y)", 2, FLOAT, "`sin` takes 1 operands, and is given 2", "give it 1 operands"),
    ("x +", 1, FLOAT, "Python's parser says: invalid syntax", "write one expression"),
    ("x if x > 0 else 0", 1, FLOAT, "`x if x > 0 else 0` is none of the forms", "select"),
    ("+x", 1, FLOAT, "`\\+x` is none of the forms", "operators"),
    ("0 < x < 1", 1, FLOAT, "`0 < x < 1` is none of the forms", "two operands"),
    ("x.real", 1, FLOAT, "`x.real` is none of the forms", "functions"),
    ("max(x, y=x)", 1, FLOAT, "none of the forms", "functions"),
    ("x * 'a'", 1, FLOAT, "`'a'` is none of the forms", "operators"),
    ("x // 2", 1, FLOAT, "`x // 2` is none of the forms", "operators"),
    ("0 < x", 1, FLOAT, "a number stands on the left of a comparison", "x > 2"),
    ("x ** 0.5", 1, FLOAT, "no operand to an integer power", "pow"),
    ("2 ** x", 1, FLOAT, "no operand to an integer power", "pow"),
    ("x + (x > 0)", 1, FLOAT, "meets bool", "select"),
    ("select(x, x, 0)", 1, FLOAT, "the condition of `select` is no bool", "write a comparison"),
    ("select(x > 0, 1, 0)", 1, FLOAT, "a number stands where an operand is needed", "give functions operands"),
    ("select(x > 0, x, x > 1)", 1, FLOAT, "meets bool", "compute with one dtype"),
    ("sin(x > 0)", 1, FLOAT, "`sin` is given bool", "use it for the dtypes"),
    ("~x", 1, FLOAT, "~ is given a float", "bools and integers"),
    ("x & y", 2, FLOAT, "& is given float", "an operator of that dtype"),
    ("x << y", 2, ANY, "<< is given", "an operator of that dtype"),
    ("-x", 1, ANY, "a bool has no sign", "use ~"),
    ("x - y", 2, BITS, "- is given bool", "an operator of that dtype"),
    ("x / y", 2, NUMERIC, "/ is given int8", "floor_divide"),
    ("x * 0.5", 1, OF_INTEGERS, "0.5 is no int32", "dtypes that have all of its numbers"),
    ("x + 300", 1, OF_INTEGERS, "300 is no uint8", "dtypes that have all of its numbers"),
    ("x - 1 - -1", 1, OF_INTEGERS, "-1 is no uint8", "dtypes that have all of its numbers"),
    ("x ** -1", 1, OF_INTEGERS, "has no negative powers", "floats alone"),
    ("sin(x)", 1, INTEGER, "no dtype that the command takes has all of these functions: sin", "functions of floats"),
    ("1 / (2 - 2) * x", 1, FLOAT, "a number stands where an operand is needed", "operands"),
]


@pytest.mark.parametrize(("expression", "arity", "accepts", "why", "fix"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_expression_is_refused_with_the_reason(
    expression: str, arity: int, accepts: Accepts, why: str, fix: str
) -> None:
    with pytest.raises(RegistryError) as caught:
        elementwise("test_wrong", np.add, expression, arity=arity, accepts=accepts)
    message = str(caught.value)
    assert message.startswith(f"test_wrong: the scalar expression {expression!r} cannot be printed: ")
    about, remedy = message.split("\nFix: ")
    assert re.search(why, about), message
    assert fix in remedy, message


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_numbers_beside_integers_are_those_of_the_dtype(dtype: str) -> None:
    bounds = np.iinfo(dtype)
    accepts: Accepts = (lambda each: each == dtype, dtype)
    for k, number in enumerate((bounds.min, bounds.max)):
        elementwise(f"test_{dtype}_{k}", np.add, f"x + ({number})", accepts=accepts)
    for number in (bounds.min - 1, bounds.max + 1):
        with pytest.raises(RegistryError, match=f"{number} is no {dtype}"):
            elementwise("test_wrong", np.add, f"x + ({number})", accepts=accepts)


def test_of_a_command_with_a_wrong_expression_nothing_stays() -> None:
    def add(expression: str) -> Command:
        return elementwise("test_again", np.negative, expression, accepts=FLOAT)

    with pytest.raises(RegistryError, match="test_again"):
        add("negative(x)")
    assert "test_again" not in COMMANDS
    assert not any(target.name == "test_again" for column in nnc.graph.ATTRIBUTES.values() for target in column)
    assert scalar[add("-x")] == "-x"


def test_a_cell_that_is_filled_later_is_checked_too() -> None:
    late = register("test_late", Rules(infer=lambda x: x, reference=np.sin))
    with pytest.raises(RegistryError, match="it is no text"):
        scalar.set(late, np.sin)  # type: ignore[arg-type]
    with pytest.raises(RegistryError, match="there is no function `sine`"):
        scalar.set(late, "sine(x)")
    assert late not in scalar
    scalar.set(late, "sin(x)")
    assert late in scalar


def test_expressions_are_for_up_to_three_operands_and_one_result() -> None:
    with pytest.raises(RegistryError, match="up to 3 operands and one result(.|\n)*leave the cell `scalar` empty"):
        register("test_many", Rules(infer=lambda *specs: specs[0], reference=np.add, scalar="x + y"), arity=None)
    with pytest.raises(RegistryError, match="up to 3 operands and one result"):
        register("test_two", Rules(infer=lambda x: (x, x), reference=np.modf, scalar="x"), outputs=2)


def test_parameters_are_known_by_the_shape_rule() -> None:
    right = register(
        "test_scaled",
        Rules(
            infer=lambda x, *, scale: x,
            reference=None,
            scalar="x * scale / (1 + abs(x))",
        ),
    )
    assert right in scalar
    with pytest.raises(RegistryError, match="`scales` is neither an operand nor a parameter .* these: x, scale"):
        register("test_scales", Rules(infer=lambda x, *, scale: x, reference=None, scalar="x * scales"))
    assert register("test_any", Rules(infer=lambda x, **params: x, reference=None, scalar="x * scales")) in scalar
    with pytest.raises(RegistryError, match="`π` is neither"):
        register("test_greek", Rules(infer=lambda x, **params: x, reference=None, scalar="x * π"))
    with pytest.raises(RegistryError, match="the number 2"):
        register("test_number", Rules(infer=lambda x, *, scale: x, reference=None, scalar="max(x, scale)"))


def test_commands_of_complex_numbers_are_only_read() -> None:
    assert elementwise("test_conj", np.conj, "conj(x)", accepts=COMPLEX) in scalar


def test_a_column_of_another_package_may_check_its_cells() -> None:
    def check(target: Command, value: int) -> None:
        if value < 0:
            raise RegistryError(f"{target.name}: negative")

    size: Attribute[int] = Attribute("test_size")
    size.check_with(check)
    assert size.is_checked and not attribute("infer").is_checked
    with pytest.raises(RegistryError, match="add: negative"):
        size.set("add", -1)
    assert not size


@pytest.mark.parametrize(("expression", "wanted"), [("x != inf", True), ("x <= inf", True), ("x > inf", False)])
def test_integers_are_finite_in_every_comparison(expression: str, wanted: bool) -> None:
    compared = elementwise(
        f"test_compared {expression}",  # compiled code is remembered by the names of commands
        lambda x: np.full(x.shape, wanted),
        expression,
        accepts=INTEGER,
        result=lambda dtype: dtypes.bool_,
    )
    x = np.arange(-2, 3)
    np.testing.assert_array_equal(nnc.compile(lambda x: compared(x))(x), np.full(5, wanted))


# -- accepted expressions can be printed -----------------------------------------------------------------------------------

LEAVES = st.sampled_from(["x", "y", "1", "2", "0.5", "True"])
NUMPY: dict[str, Any] = {
    "select": np.where, "max": np.maximum, "min": np.minimum, "abs": np.abs, "floor": np.floor, "sqrt": np.sqrt,
}  # fmt: skip


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from(["+", "-", "*", "/", "&", "|", "<", ">=", "=="]), parts),
        st.builds("{}({})".format, st.sampled_from(["abs", "floor", "sqrt", "-", "~"]), parts),
        st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), parts, parts),
        st.builds("select({}, {}, {})".format, parts, parts, parts),
    )


@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.recursive(LEAVES, _larger, max_leaves=8), st.sampled_from([dtypes.bool_, dtypes.int32, dtypes.float32]))
def test_each_expression_that_is_accepted_is_printed_and_right(expression: str, dtype: dtypes.DType) -> None:
    """LLVM refuses code whose types do not fit; the values are those of Python's operators on NumPy's arrays."""
    assume("x" in expression or "y" in expression)
    try:
        target = elementwise(
            "test_drawn", np.add, expression, arity=2, accepts=(lambda given: given == dtype, dtype.name)
        )
    except RegistryError:
        assume(False)
    operands = [np.random.default_rng(seed).integers(0, 9, 64).astype(dtype) for seed in (0, 1)]
    try:
        body = lambda code, *values: print_scalar(code, target, values, dtype, {})
        (found,) = run([Elementwise(body, (dtype, dtype), dtype, 8, 64)], [operands])
    finally:
        del COMMANDS["test_drawn"]
        scalar.pop(target)
    with np.errstate(all="ignore"):
        wanted = np.asarray(eval(expression, {**NUMPY, "x": operands[0], "y": operands[1]})).astype(dtype)
    np.testing.assert_array_equal(found, wanted, err_msg=expression)
