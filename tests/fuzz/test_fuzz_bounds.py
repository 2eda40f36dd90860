"""Running bounds of errors tell a compiler that cancels from a program that does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import COMMANDS
from nnc.graph.registry import scalar
from nnc.testing.fuzz.bounds import with_bounds
from nnc.testing.fuzz.check import check
from nnc.testing.fuzz.modes import Mode
from nnc.testing.fuzz.program import Block, Program, Ref, Step
from nnc.testing.fuzz.reference import run_reference
from nnc.testing.fuzz.subject import Subject
from nnc.testing.fuzz.values import WILD, Input, literal


def bound_of(function: Any, *xs: Any) -> tuple[Any, Any]:
    """The value in a wider dtype, and the bound of its error."""
    with with_bounds() as interpreter:
        result = function(*[nnc.asarray(x) for x in xs])
    return interpreter.shadow(result.data)


def subject(*steps: Step) -> Subject:
    """A program of two values that are nearly equal."""
    a = np.random.default_rng(1).uniform(1, 2, 40).astype("float32")
    inputs = (literal("a", a), literal("b", a * np.float32(1 - 1e-5)))
    found = Subject.of(Program(inputs, Block(("a", "b"), steps, (steps[-1].results,))))
    assert found is not None
    return found


def instead(source: str) -> Mode:
    """A mode that runs other code in place of the program."""
    return Mode("eager", lambda s: f"a, b = inputs()\nreturn [{source}]", lambda s: "return program(*inputs())")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * y + x,
        lambda x, y: nnp.exp(x) - nnp.exp(y),
        lambda x, y: (x + 1e3) - 1e3 * y,
        lambda x, y: nnp.cumsum(x) * nnp.sum(y),
        lambda x, y: nnp.sort(nnp.abs(x)) / (nnp.abs(y) + 1),
        lambda x, y: x.at[nnp.asarray([1, 1, 2])].add(-y[:3]),
        lambda x, y: nnp.outer(x, y) @ y,
    ],
)
def test_results_in_their_own_dtype_lie_within_the_bounds(function: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    xs = [nnp.asarray(rng.uniform(-2, 2, 50), dtype) for _ in range(2)]
    exact, error = bound_of(function, *xs)
    found = np.asarray(function(*xs)).astype(exact.dtype)
    assert np.all(np.abs(found - exact) <= 4 * error)
    assert np.all(np.isfinite(error)) and np.all(error[exact != 0] > 0)


def test_the_bound_grows_where_the_program_cancels_and_not_where_operands_are_exact() -> None:
    x = np.float32([1.0, 3.0])
    _, direct = bound_of(lambda x, y: x - y, x, x * np.float32(1 - 2**-20))
    _, behind = bound_of(lambda x: x * 3 - x * np.float32(2.999999), x)
    assert np.all(direct < 1e-12) and np.all(behind > 1e-8)


def test_a_remainder_by_a_number_that_may_be_flushed_to_0_has_no_bound() -> None:
    x = np.float32([1e-40, 1e-3])
    _, error = bound_of(lambda x: x % x, x)
    assert np.isinf(error[0]) and np.isfinite(error[1])


def test_an_order_of_complex_numbers_that_rounding_may_turn_has_no_bound() -> None:
    x = np.complex64([0.1 + 1j, 0.1 + 2j])
    _, rounded = bound_of(lambda x: nnp.sort(x * np.complex64(0.3)), x)
    _, exact = bound_of(nnp.sort, x)
    assert np.isinf(rounded).all() and not np.any(exact)


def test_the_sign_of_a_nan_bounds_nothing() -> None:
    x = np.array([np.nan, -2.0])
    exact, error = bound_of(lambda x: nnp.copysign(nnp.ones(2, "float64"), x), x)
    assert np.isinf(error[0]) and exact[1] == -1 and error[1] < 1e-14


def test_a_callback_passes_on_the_error_of_its_operand() -> None:
    def called(x: Any) -> Any:
        y = x[1:] - x[:1]
        return nnc.pure_callback(np.sin, nnc.ShapeDtypeStruct(y.shape, y.dtype), y)

    x = np.array([1e8, 1e8 + 1])
    (_, exact), (_, rounded) = bound_of(called, x), bound_of(lambda x: called(x / 3), x)
    assert exact.max() < 1e-15 and rounded.max() > 1e-9


def test_references_of_long_doubles_have_the_digits_of_float64() -> None:
    rng = np.random.default_rng(0)
    for c in (c for c in COMMANDS.values() if c in scalar and c.arity is not None):
        xs = [rng.uniform(0.1, 0.9, 5) for _ in range(c.arity)]
        found: list[Any] = []
        with (
            suppress(Exception),
            np.errstate(all="ignore"),
        ):  # NumPy has no such function of long doubles, or it is of integers
            wide = run_reference(c, [x.astype(np.longdouble) for x in xs], {})
            found += zip(run_reference(c, xs, {}), wide, strict=True)
        for x, y in found:
            assert x.dtype != np.float64 or np.all((np.abs(x - y) <= 1e-13 * np.abs(x)) | (x != x)), c.name


def test_a_comparison_that_rounding_may_turn_is_undecided() -> None:
    x = np.float32([0.1])
    _, near = bound_of(lambda x: x * 3 > 0.3, x)
    _, far = bound_of(lambda x: x * 3 > 0.4, x)
    assert np.isinf(near).all() and not np.any(far)
    with with_bounds() as interpreter:
        assert (nnc.asarray(x)[0] * 3 > np.float32(0.3)).shape == ()
    assert interpreter.undecided


def test_digits_that_the_compiler_loses_are_a_finding_though_random_rounding_excuses_them() -> None:
    whole = subject(Step("c", "{0} - {1}", (Ref("a"), Ref("b"))))
    assert check(whole, instead("a - b")) is None
    found = check(whole, instead("(a * 3 - b * 3) / 3"))
    assert found is not None and found.kind == "cancellation" and 0 < found.bound < 1e-10


def test_digits_that_the_program_itself_loses_are_no_finding() -> None:
    whole = subject(
        Step("c", "{0} * 3", (Ref("a"),)),
        Step("d", "{0} * 3", (Ref("b"),)),
        Step("e", "{0} - {1}", (Ref("c"), Ref("d"))),
    )
    assert check(whole, instead("(a - b) * 3")) is None and check(whole, instead("a * 3 - b * 3")) is None
    found = check(whole, instead("(a - b) * 5"))
    assert found is not None


def test_inputs_of_all_sizes_are_drawn_in_every_dtype() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64"):
        for kind in WILD:
            x = np.abs(np.asarray(Input("a", (200,), dtype, kind, 1).array()).astype("complex128"))
            assert np.all(np.isfinite(x)) and np.all(x > 0)
            with np.errstate(all="ignore"):
                squares = (x.real.astype(np.float64) ** 2).astype(dtype if dtype != "bfloat16" else "float32")
            assert kind == "wide" or dtype == "bfloat16" or not np.all(np.isfinite(squares) & (squares > 0))


def test_bounds_of_moved_elements_hold_denormals_that_programs_flush() -> None:
    x = np.array([1e-39, 1.0, 2e-38], "float32")
    for move in (lambda x: x[::-1], lambda x: nnp.stack([x, x]), lambda x: nnp.reshape(x, (3, 1))):
        value, bound = bound_of(move, x)
        is_denormal = np.abs(value) < 1e-38
        assert np.all(bound[is_denormal] >= np.abs(value[is_denormal])) and np.all(bound[~is_denormal] == 0)


def test_weak_results_that_their_shown_dtype_does_not_hold_are_no_finding() -> None:
    number = Input("a", (), "int64", "python", elements=(-3, 300, 4))
    program = Subject.of(Program((number,), Block(("a",), (Step("b", "nnp.exp2", (Ref("a"),)),), ("b",))))
    assert program is not None
    mode = Mode(
        "compiled",
        lambda s: "f = nnc.compile(program)\nreturn [f(*inputs(k)) for k in (0, 1)]",
        lambda s: "return [program(*inputs(k)) for k in (0, 1)]",
    )
    assert check(program, mode) is None
