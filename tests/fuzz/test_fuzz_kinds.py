"""Generated programs hold all kinds of calls, and a planted defect of each kind is found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.elementwise import convert
from nnc.testing.fuzz.campaign import Settings, run_program, shrunk
from nnc.testing.fuzz.check import check
from nnc.testing.fuzz.derived import second_derivative
from nnc.testing.fuzz.generate import MAKERS, Generator, generate
from nnc.testing.fuzz.modes import MODES, Mode
from nnc.testing.fuzz.offers import all_offers
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.program import Block, Function, Program, Ref, Step, program_source, walk
from nnc.testing.fuzz.report import as_test
from nnc.testing.fuzz.subject import Subject, namespace
from nnc.testing.fuzz.values import Input
from nnc.testing.fuzz.wild import SEEN
from nnc.trace.core.custom_rules import VjpRule

KINDS = (
    "axis_name='i'",
    "axis_name='j'",
    "nnc.p",
    "custom_vjp",
    "custom_jvp",
    ".at[",
    "nnc.optim.",
)


def mode(name: str) -> Mode:
    return next(mode for mode in MODES if mode.name == name)


def subject(inputs: tuple[Input, ...], *steps: Step) -> Subject:
    """A program that returns the results of its last step."""
    names = tuple(x.name for x in inputs)
    found = Subject.of(Program(inputs, Block(names, steps, steps[-1].defines)))
    assert found is not None
    return found


def number(*values: Any) -> Input:
    """A Python number, another one in each call."""
    return Input("n", (), "float64" if isinstance(values[0], float) else "int64", "python", elements=values)


def rule(bwd: str = "ct * ct * w") -> str:
    """A call of a function of one value, with a rule that is not linear in the cotangent."""
    return (
        f"(lambda h: (h.defvjp(lambda w: (w * w, w), lambda w, ct: ({bwd},)), h)[1])(nnc.custom_vjp(lambda w: w * w))"
    )


def test_programs_hold_every_kind_of_call_and_python_numbers_and_are_the_same_each_time() -> None:
    offers = all_offers()
    programs = [generate((7, i), offers) for i in range(0, 600, 15)]
    found = Counter(kind for p in programs for kind in KINDS if kind in program_source(p))
    assert not set(KINDS) - set(found)
    assert sum(any(x.kind == "python" for x in p.inputs) for p in programs) > 5
    for kind in ("nnc.scipy.special.", "nnc.pure_callback", "nnc.debug.callback"):
        first = [offer for offer in offers if offer.name.startswith(kind)]
        assert any(kind in program_source(generate((7, i), offers, first)) for i in range(5))
    assert second_derivative in MAKERS
    again = [generate((7, i), offers) for i in range(0, 90, 15)]
    assert again == programs[: len(again)]


def test_offers_reach_public_functions_of_every_package() -> None:
    names = {offer.name for offer in all_offers()}
    assert {
        "nnc.scipy.special.erf",
        "nnc.scipy.stats.norm.logpdf",
        "nn.gelu",
        "nnp.linalg.norm",
        "optimizer",
        ".at.multiply",
    } <= names


def test_a_rule_under_an_axis_that_counts_twice_is_found() -> None:
    body = Block(("x",), (Step("y", rule("3 * ct * w") + "({0}) * {1}", (Ref("w"), Ref("x"))),), ("y",))
    step = Step(("r",), "nnc.vmap({0}, axis_name='i')({1})", (Function(0), Ref("v")), (), (body,))
    inputs = (Input("w", (), "float64", "uniform", 1), Input("v", (3,), "float64", "uniform", 2))
    whole = subject(inputs, step)
    vjp = mode("eager vjp")

    def twice(s: Subject) -> str:
        return vjp.source(s).replace("wave(y) for y", "2 * wave(y) for y")

    assert check(whole, Mode("eager vjp", twice, vjp.source)) is not None
    assert check(whole, vjp) is None


def test_generated_rules_within_axes_read_shared_values_and_their_places() -> None:
    offers, shared, places = all_offers(), 0, 0
    for i in range(0, 900, 15):
        program = generate((11, i), offers)
        for step in walk(program.body.steps):
            if "axis_name=" not in step.call:
                continue
            rules = [inner for inner in walk(step.blocks[0].steps) if "nnc.custom_" in inner.call]
            shared += sum(not step.reads.isdisjoint(inner.reads) for inner in rules)
            places += sum("1 + nnc.axis_index" in x.call for inner in rules for b in inner.blocks for x in b.steps)
    assert shared > 3 and places > 3


def test_a_rule_whose_places_have_cotangents_of_their_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Block(("x",), (Step("y", rule("3 * ct * w") + "({0}) * {1}", (Ref("w"), Ref("x"))),), ("y",))
    step = Step(("r",), "nnc.vmap({0}, axis_name='i')({1})", (Function(0), Ref("v")), (), (body,))
    inputs = (Input("w", (), "float64", "uniform", 1), Input("v", (3,), "float64", "uniform", 2))
    assert check(subject(inputs, step), mode("vjp")) is None
    every = lambda self, batched, count: [*batched[:1], *[True] * (count - 1), *batched[count:]]
    monkeypatch.setattr(VjpRule, "batched_arguments", every)
    found = check(subject(inputs, step), mode("vjp"))
    assert found is not None and found.kind == "value"


def test_an_axis_that_is_taken_for_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Block(("x",), (Step("y", "{0} * nnc.axis_index('j')", (Ref("x"),)),), ("y",))
    outer = Block(
        ("u",), (Step(("y2",), "nnc.vmap({0}, axis_name='j')({1})", (Function(0), Ref("u")), (), (inner,)),), ("y2",)
    )
    step = Step(("r",), "nnc.vmap({0}, axis_name='i')({1})", (Function(0), Ref("v")), (), (outer,))
    whole = subject((Input("v", (2, 3), "float32", "grid", 2),), step)
    assert check(whole, mode("compiled")) is None
    right = nnc.axis_index
    monkeypatch.setattr(nnc, "axis_index", lambda name: right("i"))
    found = check(whole, mode("compiled"))
    assert found is not None and found.kind == "value"


def test_a_number_that_does_not_fit_must_be_refused() -> None:
    whole = subject(
        (Input("x", (2,), "uint8", "grid", 1), number(3, 300, 5)), Step("y", "{0} + {1}", (Ref("x"), Ref("n")))
    )
    assert check(whole, mode("eager")) is None
    wraps = Mode(
        "eager",
        lambda s: "return [inputs(k)[0] + np.uint8(inputs(k)[1] % 256) for k in (0, 1, 2, 0)]",
        mode("eager").source,
    )
    found = check(whole, wraps)
    assert found is not None and found.kind == "silence" and "300" in found.text
    assert "raise AssertionError" in as_test(whole, mode("eager"), found, "here")


@pytest.mark.parametrize("read", ["a", "b"])
def test_a_number_that_does_not_fit_may_pass_where_nothing_reads_the_result(read: str) -> None:
    inner = Block(("u",), (Step("w", "nnp.full_like", (Ref("u"), Ref("n"))),), ("u", "w"))
    step = Step(("a", "b"), "nnc.vmap({0})({1})", (Function(0), Ref("x")), (), (inner,))
    inputs = (Input("x", (2,), "uint8", "grid", 1), number(3, 300, 5))
    whole = Subject.of(Program(inputs, Block(("x", "n"), (step,), (read,))))
    assert whole is not None
    silent = Mode("compiled", lambda s: "return [inputs(k)[0] for k in (0, 1, 2, 0)]", mode("compiled").source)
    found = check(whole, silent)
    assert (found is None) if read == "a" else (found is not None and found.kind == "silence")
    assert check(whole, mode("compiled")) is None


def test_a_number_that_wraps_around_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = subject(
        (Input("x", (2,), "int8", "grid", 1), number(3, 300, 5)), Step("y", "{0} * {1}", (Ref("x"), Ref("n")))
    )
    assert check(whole, mode("compiled")) is None
    again = replace(whole)
    monkeypatch.setattr("nnc.array.promote.fit", lambda x, dtype, where: convert(x, dtype=dtype))
    found = check(again, mode("compiled"))
    assert found is not None and found.kind == "silence"


def test_a_counter_that_wraps_around_in_comparisons_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    call = "nnc.fori_loop(254, 258, lambda i, x: nnp.where(x < i, x, x // 2), {0})"
    whole = subject((Input("x", (3,), "int8", "grid", 1),), Step("y", call, (Ref("x"),)))
    assert check(whole, mode("unspecialised")) is None
    monkeypatch.setattr("nnc.array.promote.compare_beyond", lambda command, operands: None)
    monkeypatch.setattr("nnc.array.promote.fit", lambda x, dtype, where: convert(x, dtype=dtype))
    found = check(whole, mode("unspecialised"))
    assert found is not None and found.kind == "value"


def test_commands_that_want_equal_dtypes_get_no_numbers_in_place_of_weak_arrays() -> None:
    inputs = (Input("x", (), "float32", "number", 1), Input("y", (), "float32", "grid", 2))
    steps = [Step("z", call, (Ref("y"), Ref("x"))) for call in ("command('hypot')({0}, {1})", "nnp.hypot")]
    raw, public = (subject(inputs, step) for step in steps)
    assert not mode("numbers").applies(raw) and mode("numbers").applies(public)
    assert check(public, mode("numbers")) is None and check(raw, mode("compiled")) is None


def test_a_number_that_loses_digits_is_found() -> None:
    whole = subject(
        (Input("x", (2,), "float64", "grid", 1), number(0.1, 0.3, 0.7)), Step("y", "{0} * {1}", (Ref("x"), Ref("n")))
    )
    assert check(whole, mode("eager")) is None
    short = Mode(
        "eager",
        lambda s: "return [inputs(k)[0] * float(np.float32(inputs(k)[1])) for k in (0, 1, 2, 0)]",
        mode("eager").source,
    )
    found = check(whole, short)
    assert found is not None and found.kind == "value"


def test_a_weak_array_that_becomes_strong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = subject((Input("x", (3,), "float32", "grid", 1),), Step("y", "nnp.flip", (Ref("x"),)))
    weak = mode("weak")
    assert weak.applies(whole)
    right = nnp.flip
    monkeypatch.setattr(nnp, "flip", lambda x: right(x).astype(x.dtype))
    found = check(whole, weak)
    assert found is not None and found.kind == "form" and "float64" in found.text


@pytest.mark.parametrize("call", ["nnp.digamma({n})", "nnp.copy({n})", "nnc.vmap(lambda x: nnp.rint({n}))({x})"])
def test_references_of_commands_keep_numbers_weak(call: str) -> None:
    step = Step("y", call.format(n="{1}", x="{0}"), (Ref("x"), Ref("n")))
    whole = subject((Input("x", (2,), "float16", "grid", 1), number(0.1, 0.3, 0.7)), step)
    assert whole.results[0].dtype.name == "float32"
    for name in ("eager", "compiled", "compiled vmap"):
        assert check(whole, mode(name)) is None


@pytest.mark.parametrize("read", ["{0}.at[...].set({1})", "nnc.vmap(lambda a, b: b, in_axes=(0, None))({1}, {0})"])
def test_a_number_that_does_not_fit_may_pass_where_its_elements_are_not_read(read: str) -> None:
    made = Step("y", "{0} * {1}", (Ref("x"), Ref("n")))
    over = Step("z", read, (Ref("y"), Ref("x")))
    hidden = read.startswith("{0}")
    whole = Subject.of(
        Program((Input("x", (2,), "uint8", "grid", 1), number(3, 300, 5)), Block(("x", "n"), (made, over), ("z",)))
    )
    assert whole is not None
    silent = Mode("compiled", lambda s: "return [inputs(k)[0] for k in (0, 1, 2, 0)]", mode("compiled").source)
    assert (check(whole, silent) is None) == hidden
    assert check(whole, mode("compiled")) is None


def test_a_formula_of_numbers_that_loses_digits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step("y", "{0} * nnp.log(nnp.abs({1}) + 1)", (Ref("x"), Ref("n")))
    whole = subject((Input("x", (2,), "float64", "grid", 1), number(0.1, 0.3, 0.7)), step)
    digits, right = mode("digits"), nnp.log
    assert digits.applies(whole) and check(whole, digits) is None
    monkeypatch.setattr(nnp, "log", lambda x: right(x).astype(x.dtype) if x.weak else right(x))
    found = check(whole, digits)
    assert found is not None and found.kind == "value"


def test_a_loop_that_is_refused_where_references_run_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(f: Any, *args: Any) -> Any:
        raise nnc.errors.ShapeError("another carry")

    loop = Step("r", "nnc.scan(lambda c, x: (c, x), {0}, {0})[1]", (Ref("v"),))
    program = Program((Input("v", (2,), "float32"),), Block(("v",), (loop,), ("r",)))
    monkeypatch.setattr(nnc, "scan", refused)
    monkeypatch.setattr("nnc.testing.fuzz.campaign.generate", lambda *args: program)
    (found,) = run_program(Settings(), 0, [], [], lambda mode: None).findings
    assert "refuses to trace it: another carry" in found and loop.call.partition("{")[0] in found
    source = Generator(random.Random(1), [], scope={**namespace(Plain()), "v": program.inputs[0].array()})
    source.accept(loop)
    assert not source.untraceable


def test_a_stale_result_for_arrays_of_another_size_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = subject((Input("x", (3,), "float32", "uniform", 1),), Step("y", "nnp.sum", (Ref("x"),)))
    sizes = mode("sizes")
    assert sizes.applies(whole) and {x.shape for p in whole.resized for x in p.inputs} == {(1,), (4,), (6,), (10,)}
    assert check(whole, sizes) is None

    def compiled(fun: Any) -> Any:
        known: list[Any] = []
        return lambda *args: known.append(fun(*args)) or known[0]

    monkeypatch.setattr(nnc, "compile", compiled)
    assert check(whole, sizes) is not None


def test_a_callback_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Block(("i", "x"), (Step("y", SEEN, (Ref("x"),)), Step("z", "{0} + 1", (Ref("y"),))), ("z",))
    loop = Step(
        "r",
        "nnc.fori_loop(0, 3, lambda i, x: {0}(i, x)[0], {1})",
        (Function(0), Ref("v")),
        (),
        (Block(("i", "x"), body.steps, ("z",)),),
    )
    whole = Subject.of(Program((Input("v", (2,), "float32", "grid", 1),), Block(("v",), (loop,), ("r",))))
    assert whole is not None
    one = subject((Input("v", (2,), "float32", "grid", 1),), Step("y", SEEN, (Ref("v"),)))
    assert not whole.has_effects or check(whole, mode("effects")) is None
    assert one.has_effects and check(one, mode("effects")) is None
    monkeypatch.setattr("nnc.debug.callback", lambda *args: None)
    lost = Mode(
        "effects",
        mode("effects").source,
        lambda s: mode("effects").source(s).replace("list(seen)", "[inputs(k)[0] for k in (0, 1, 2, 0)]"),
    )
    assert check(one, lost) is not None


def test_a_finding_within_named_axes_is_made_small_and_printed_as_a_test_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = Block(
        ("x",),
        (
            Step("s", "{0} + 1", (Ref("x"),)),
            Step("t", "nnc.psum({0}, 'i')", (Ref("s"),)),
            Step("y", "{0} * {1}", (Ref("t"), Ref("w"))),
        ),
        ("y",),
    )
    before = Step("u", "{0} * {0}", (Ref("v"),))
    step = Step(("r",), "nnc.vmap({0}, axis_name='i')({1})", (Function(0), Ref("u")), (), (body,))
    inputs = (Input("w", (), "float64", "uniform", 1), Input("v", (3,), "float64", "uniform", 2))
    whole = subject(inputs, before, step)
    right = nnc.psum
    monkeypatch.setattr(nnc, "psum", lambda x, axis_name: right(x, axis_name) * 2)
    found = check(whole, mode("eager"))
    assert found is not None
    test = shrunk(whole.program, mode("eager"), found, 20.0, "here")
    assert "nnc.psum" in test and "+ 1" not in test and " * v" not in test.split("def run")[0]
    names: dict[str, Any] = {}
    exec(test, names)
    with pytest.raises(AssertionError):
        names["test_eager_gives_what_references_give"]()


def test_results_of_a_stored_graph_have_the_dtypes_that_numbers_have_in_memory() -> None:
    step = Step("y", "nnp.arccosh", (Ref("n"),))
    whole = Subject.of(Program((number(2.0, 3.0, 7.0),), Block(("n",), (step,), ("y", "n"))))
    assert whole is not None and whole.results[0].dtype.name == "float32"
    assert check(whole, mode("json")) is None
