"""Tracebacks hold the lines of users, and lines of nnc only where somebody asks for them."""

from __future__ import annotations

import contextlib
import io
import pdb  # noqa: T100
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, InternalError, NncError, ShapeError
from nnc.errors.tracebacks import api_boundary, cut_traceback, users_frames

NNC = str(Path(nnc.__file__).parent)
X = np.ones(3, np.float32)


def frames(error: BaseException) -> list[str]:
    """The functions of a traceback, from the test on; functions of nnc with a mark."""
    found = [
        f"{'nnc:' if x.filename.startswith(NNC) else ''}{x.name}" for x in traceback.extract_tb(error.__traceback__)
    ]
    return found[1:]


def caught(run: Callable[..., object], *args: Any) -> BaseException:
    try:
        run(*args)
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


class Model(nnc.nn.Module):
    width: int = 3

    def __call__(self, x: Any) -> Any:
        return x * self.missing  # type: ignore[attr-defined]


MODEL = Model()


def loss(x: Any) -> Any:
    return nnp.sum(MODEL(x))


def step(carry: Any, x: Any) -> Any:
    return MODEL(carry), x


@nnc.custom_vjp
def custom(x: Any) -> Any:
    return nnp.sum(x)


custom.defvjp(lambda x: (loss(x), x), lambda x, ct: (ct,))


@nnc.custom_jvp
def custom_forward(x: Any) -> Any:
    return nnp.sum(x)


custom_forward.defjvp(lambda primals, tangents: (loss(primals[0]), tangents[0]))
DYNAMIC = nnc.DynamicGraph()
OPTIMIZER = nnc.optim.GradientTransformation(
    lambda params: (), lambda updates, state, params=None: (loss(updates), state)
)
TRANSFORMS: dict[str, Callable[[], object]] = {
    "compile": lambda: nnc.compile(loss)(X),
    "lower": lambda: nnc.compile(loss).lower(X),
    "grad": lambda: nnc.grad(loss)(X),
    "value_and_grad": lambda: nnc.value_and_grad(loss)(X),
    "jvp": lambda: nnc.jvp(loss, (X,), (X,)),
    "vjp": lambda: nnc.vjp(loss, X),
    "linearize": lambda: nnc.linearize(loss, X),
    "jacrev": lambda: nnc.jacrev(loss)(X),
    "hessian": lambda: nnc.hessian(loss)(X),
    "vmap": lambda: nnc.vmap(loss)(X),
    "scan": lambda: nnc.scan(step, X, X),
    "unrolled scan": lambda: nnc.scan(step, X, X, unroll=2),
    "map": lambda: nnc.map(loss, X),
    "associative_scan": lambda: nnc.associative_scan(lambda a, b: loss(a), X),
    "while_loop": lambda: nnc.while_loop(lambda x: x.sum() < 3, MODEL, X),
    "fori_loop": lambda: nnc.fori_loop(0, 3, lambda i, x: MODEL(x), X),
    "dynamic fori_loop": lambda: nnc.fori_loop(0, nnp.asarray(3), lambda i, x: MODEL(x), X),
    "cond": lambda: nnc.cond(True, loss, loss, X),
    "switch": lambda: nnc.switch(0, [loss], X),
    "case_of": lambda: nnc.case_of(0, [loss], X),
    "checkpoint": lambda: nnc.grad(nnc.checkpoint(loss))(X),
    "custom_vjp": lambda: nnc.grad(custom)(X),
    "custom_jvp": lambda: nnc.jvp(custom_forward, (X,), (X,)),
    "make_graph": lambda: nnc.make_graph(loss)(X),
    "eval_shape": lambda: nnc.eval_shape(loss, X),
    "nested": lambda: nnc.compile(nnc.vmap(nnc.grad(nnc.checkpoint(loss))))(np.ones((2, 3), np.float32)),
    "DynamicGraph": lambda: DYNAMIC.evaluate(loss, DYNAMIC.variable(X)),
    "layers": lambda: nnc.nn.Sequential([nnc.nn.Lambda(loss)])(X),
    "optimizers": lambda: nnc.optim.chain(OPTIMIZER).update(X, ((),)),
    "tree.map": lambda: nnc.tree.map(loss, {"x": X}),
    "vectorize": lambda: nnp.vectorize(loss)(X),
    "callback": lambda: nnc.compile(lambda x: (nnc.debug.callback(loss, x), x)[1])(X),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_error_in_a_users_function_shows_no_frame_of_nnc(name: str) -> None:
    error = caught(TRANSFORMS[name])
    assert type(error) is AttributeError, error
    assert not any(x.startswith("nnc:") for x in frames(error))
    assert frames(error)[0] == "<lambda>" and frames(error)[-1] == "__call__"
    assert not hasattr(error, "__notes__")


def test_the_frames_of_users_between_those_of_nnc_are_all_kept_in_their_order() -> None:
    def innermost(x: Any) -> Any:
        raise KeyError("mine")

    def mapped(x: Any) -> Any:
        return nnc.vmap(innermost)(x)

    def differentiated(x: Any) -> Any:
        return nnc.grad(lambda y: mapped(y).sum())(x)

    error = caught(lambda: nnc.compile(differentiated)(X))
    assert frames(error) == ["<lambda>", "differentiated", "<lambda>", "mapped", "innermost"]


EAGER: dict[str, Callable[[], object]] = {
    "operator": lambda: nnp.ones(3) + nnp.ones(4),
    "function": lambda: nnp.add(nnp.ones(3), nnp.ones(4)),
    "method": lambda: nnp.ones(3).reshape(5),
    "command": lambda: nnp.reshape(nnp.ones(3), (5,)),
    "NumPy's operator": lambda: np.ones(3) + nnp.ones(4),
    "conversion": lambda: float(nnp.ones(3)),
    "item": lambda: nnp.ones(3).item(),
    "power": lambda: nnp.ones(3) ** nnp.ones(4),
    "asarray": lambda: nnp.asarray([[1], [1, 2]]),
    "layer": lambda: nnc.nn.Linear(3, 4),
    "optimizer": lambda: nnc.optim.adam(0.1).update(X, "state"),
    "gradient": lambda: nnc.grad(lambda x: x)(X),
    "shapes": lambda: nnc.ShapeDtypeStruct((-1,), "float32"),
    "scale": lambda: nnc.optim.StaticLossScale("x"),  # type: ignore[arg-type]
    "file": lambda: nnc.io.load("/missing/file.safetensors"),
}


@pytest.mark.parametrize("name", EAGER)
def test_an_error_of_nnc_itself_shows_at_most_one_frame_of_nnc(name: str) -> None:
    error = caught(EAGER[name])
    assert isinstance(error, NncError)
    assert sum(x.startswith("nnc:") for x in frames(error)) <= 1
    assert frames(error)[0] == "<lambda>"


def public_functions() -> list[tuple[str, Callable[..., object]]]:
    modules = (nnc, nnp, nnp.linalg, nnp.fft, nnc.random, nnc.nn, nnc.optim, nnc.io, nnc.data)
    names = [(module, name) for module in modules for name in module.__all__]
    return [
        (f"{module.__name__}.{name}", found)
        for module, name in names
        if isinstance(found := getattr(module, name), (types.FunctionType, type)) and not issubclass_of_error(found)
    ]


def issubclass_of_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)


class Stubborn:
    """Answers no question."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("count", [1, 2, 13])
def test_no_public_function_shows_more_than_one_frame_of_nnc_for_arguments_that_it_cannot_take(count: int) -> None:
    seen = 0
    for name, function in public_functions():
        for one in (Stubborn(), X):
            error = None
            with contextlib.suppress(AssertionError):
                error = caught(function, *[one] * count)
            if error is not None:
                seen += 1
                assert sum(x.startswith("nnc:") for x in frames(error)) <= 1, (name, frames(error))
    assert seen > 300


def test_causes_contexts_and_groups_are_cut_as_well() -> None:
    def causes(x: Any) -> Any:
        try:
            nnc.vmap(loss)(x)
        except AttributeError as error:
            raise ValueError("second") from error

    def contexts(x: Any) -> Any:
        try:
            nnc.vmap(loss)(x)
        except AttributeError:
            raise ValueError("second")  # noqa: B904

    def groups(x: Any) -> Any:
        raise ExceptionGroup("both", [caught(lambda: causes(x)), caught(lambda: contexts(x))])

    error = caught(lambda: nnc.grad(groups)(X))
    assert isinstance(error, ExceptionGroup)
    first, second = error.exceptions
    chained = [error, first, second, first.__cause__, second.__context__]
    assert None not in chained
    assert not any("nnc:" in x for one in chained if one is not None for x in frames(one))
    assert first.__cause__ is not None and frames(first.__cause__) == ["loss", "__call__"]


def test_foreign_errors_that_arise_within_nnc_say_where() -> None:
    @api_boundary
    def public(x: Any) -> Any:
        return exec(compile("x.missing", NNC + "/imagined.py", "exec"), {"x": x})

    error = caught(lambda: public(X))
    assert not any(x.startswith("nnc:") for x in frames(error))
    (note,) = error.__notes__
    assert "imagined.py:1" in note and "NNC_TRACEBACK=full" in note


def test_internal_errors_keep_their_whole_traceback() -> None:
    def broken(x: Any) -> Any:
        raise InternalError("a bug")

    assert any(x.startswith("nnc:") for x in frames(caught(lambda: nnc.vmap(broken)(X))))


def test_the_environment_asks_for_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_TRACEBACK", "full")
    assert sum(x.startswith("nnc:") for x in frames(caught(lambda: nnc.compile(nnc.grad(loss))(X)))) > 5
    monkeypatch.setenv("NNC_TRACEBACK", "user")
    assert not any(x.startswith("nnc:") for x in frames(caught(lambda: nnc.compile(nnc.grad(loss))(X))))


def test_a_debugger_opens_the_error_in_the_users_frame() -> None:
    error = caught(lambda: nnc.compile(loss)(X))
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("p self.width\nup\np x.shape\nq\n"), stdout=out, nosigint=True, readrc=False)
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    assert "(3,)" in out.getvalue() and "3\n" in out.getvalue()


def test_uncaught_errors_print_the_users_lines_alone() -> None:
    program = "import nnc\ndef f(x):\n    return x.missing\nnnc.compile(nnc.grad(f))(1.0)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert [line.split(", ")[1:] for line in lines] == [["line 4", "in <module>"], ["line 3", "in f"]]


def test_helpers_that_users_call_themselves_stay() -> None:
    stack = contextlib.ExitStack()

    def wrong(x: Any) -> Any:
        with stack:
            stack.callback(lambda: X.missing)  # type: ignore[attr-defined]
        return x

    error = caught(lambda: nnc.compile(wrong)(X))
    assert "__exit__" in frames(error) and not any(x.startswith("nnc:") for x in frames(error))


def test_a_traceback_that_is_not_there_stays_so() -> None:
    error = ShapeError("x")
    cut_traceback(error)
    assert error.__traceback__ is None and users_frames(None) is None


def test_errors_of_users_keep_their_cause_of_none() -> None:
    def wrong(x: Any) -> Any:
        try:
            return {}["missing"]
        except KeyError:
            raise ValueError("mine") from None

    error = caught(lambda: nnc.compile(wrong)(X))
    assert type(error) is ValueError and error.__cause__ is None and error.__suppress_context__


def test_arguments_that_do_not_fit_a_boundary_are_named() -> None:
    @api_boundary
    def public(x: Any, *, flag: bool = False) -> Any:
        return x

    with pytest.raises(ArgumentTypeError, match=r"(?s)public: .*missing.*'x'.*signature public\(.*Fix: "):
        public()
    with pytest.raises(TypeError, match="mine"):
        nnc.vmap(lambda x: (_ for _ in ()).throw(TypeError("mine")))(X)


def use_donated(use: Callable[[Any], object]) -> object:
    x = nnp.ones(10)
    nnc.compile(lambda x: x + 1, donate_argnums=0)(x)
    return use(x)


MISTAKES: dict[str, Callable[[], object]] = {
    "a missing argument": lambda: nnc.optim.adam(),  # type: ignore[call-arg]
    "a misspelled argument of a transform": lambda: nnc.compile(loss, donat=0),  # type: ignore[call-overload]
    "a missing operand": lambda: nnp.maximum(X),  # type: ignore[call-arg]
    "a missing argument of a compiled function": lambda: nnc.compile(loss)(),  # type: ignore[call-arg]
    "an array of nothing": lambda: nnc.asarray(object()),  # type: ignore[arg-type]
    "an assignment to a field": lambda: setattr(MODEL, "width", 4),
    "a deleted field": lambda: delattr(MODEL, "width"),
    "a replaced field": lambda: MODEL.replace(depth=4),
    "an assignment to an element": lambda: nnp.ones(3).__setitem__(0, 1.0),  # type: ignore[arg-type]
    "an assignment to a property": lambda: setattr(nnp.ones(3), "shape", (3, 1)),
    "the length of a number": lambda: len(nnp.asarray(1.0)),
    "a donated array": lambda: use_donated(lambda x: x + 1),
    "a donated array in NumPy": lambda: use_donated(np.asarray),
    "a donated array printed": lambda: use_donated(str),
    "the elements of a donated array": lambda: use_donated(lambda x: x.data),
    "an update out of bounds": lambda: nnp.ones(3).at[5].set(1.0),
    "a sum out of bounds": lambda: nnp.ones(3).at[5].add(1.0),
    "a read out of bounds": lambda: nnp.ones(3).at[5].get(),
    "quotients of integers": lambda: nnp.arange(3).at[1].divide(2),
    "a picture of no plan": lambda: nnc.view.memory(3),
    "a picture of no schedule": lambda: nnc.view.schedule(3),
    "an option of another library": lambda: nnc.compile(loss, precision="fp8"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_of_a_call_of_nnc_ends_in_the_users_frame(name: str) -> None:
    error = caught(MISTAKES[name])
    assert isinstance(error, NncError), error
    assert not any(x.startswith("nnc:") or x == "replace" for x in frames(error)), frames(error)


@pytest.mark.parametrize(
    "mistake",
    [lambda: nnp.zeros(2, "nope"), lambda: nnp.reshape(nnp.ones(4), (3,)), lambda: nnc.io.load("/nonexistent")],
    ids=["dtype", "shape", "file"],
)
def test_an_error_that_nnc_words_shows_none_that_it_words_anew(mistake: Callable[[], Any]) -> None:
    with pytest.raises(NncError) as caught:
        mistake()
    shown = "".join(traceback.format_exception(caught.value))
    assert "During handling of the above exception" not in shown and shown.count("Error: ") == 1
