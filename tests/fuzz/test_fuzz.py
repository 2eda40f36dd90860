"""Generated programs find planted defects, make them small, and print them as tests that fail."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.graph import Kernel, add_kernel, command, reference, register
from nnc.graph.registry import batch
from nnc.graph.rules import Derivative, Rules
from nnc.testing import fuzz
from nnc.testing.fuzz.check import _meets_infinities, _transforms_infinities, check
from nnc.testing.fuzz.generate import generate
from nnc.testing.fuzz.modes import MODES, Mode
from nnc.testing.fuzz.offers import all_offers
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.program import Block, Program, Ref, Step
from nnc.testing.fuzz.reference import disturbed, run_reference, smallest_normal
from nnc.testing.fuzz.subject import Subject, define
from nnc.testing.fuzz.values import Input

seen: list[Any] = []  # by callbacks, under the name that it has in programs
PLANTED = {"isolated": False, "findings": 1, "shrinking": 20.0}


def fails(test: str) -> bool:
    """Whether the printed test fails."""
    names: dict[str, Any] = {}
    exec(test, names)
    found = next(value for name, value in names.items() if name.startswith("test_"))
    try:
        found()
    except AssertionError:
        return True
    return False


def calls(test: str) -> int:
    """The number of steps of the printed program."""
    body = test.split("def program(")[1].split("def inputs(")[0]
    return body.count(" = ")


def only_finding(report: fuzz.Report) -> str:
    assert len(report.findings) == 1
    return report.findings[0]


def test_a_wrong_batching_rule_is_found_and_made_small(own_registries: None) -> None:
    right = batch[command("flip")]

    def wrong(size: int, operands: Any, batched: Any, **params: Any) -> Any:
        return ((operands[0],), (True,)) if 0 in params["axes"] else right(size, operands, batched, **params)

    batch.set("flip", wrong, priority=99)
    test = only_finding(fuzz.run(programs=150, seed=2, modes=["vmap"], commands=["flip", "nnp.flip"], **PLANTED))
    assert "nnc.vmap" in test and ("flip" in test or "[::-1]" in test) and calls(test) <= 2
    assert fails(test)


def test_a_stale_result_of_a_second_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(fun: Any, **options: Any) -> Any:
        known: dict[Any, Any] = {}

        def call(*args: Any) -> Any:
            key = tuple(getattr(x, "spec", x) for x in args)
            return known.setdefault(key, fun(*args))

        return call

    monkeypatch.setattr(nnc, "compile", compiled)
    test = only_finding(fuzz.run(programs=30, modes=["compiled"], **PLANTED))
    assert calls(test) <= 1 and "(0, 1, 2, 0)" in test
    assert fails(test)


def test_an_element_that_a_kernel_does_not_store_is_found(own_registries: None) -> None:
    def run(inputs: Any, outputs: Any, params: Any) -> None:
        outputs[0][...] = np.sinh(inputs[0])
        if outputs[0].size % 2 and outputs[0].size > 1:
            outputs[0].reshape(-1)[-1] = 0

    add_kernel("sinh", Kernel("planted", run, priority=99))
    test = only_finding(fuzz.run(programs=200, modes=["compiled", "eager", "donated"], commands=["sinh"], **PLANTED))
    assert "sinh" in test and calls(test) <= 2
    assert fails(test)


def test_a_wrong_derivative_of_a_command_from_outside_is_found(own_registries: None) -> None:
    register(
        "shifted", Rules(
            infer=lambda x, *, shift: x, reference=lambda x, *, shift: x * x + x.dtype.type(shift),
            derivative=Derivative(jvp=lambda primals, tangents, outputs, **params: (3 * primals[0] * tangents[0],)),
        ),
    )  # fmt: skip
    test = only_finding(fuzz.run(programs=60, modes=["jvp by differences"], commands=["shifted"], **PLANTED))
    assert "shifted" in test and calls(test) == 1


def test_programs_of_a_seed_are_always_the_same() -> None:
    offers = all_offers()
    assert [generate((3, i), offers) for i in range(5)] == [generate((3, i), offers) for i in range(5)]


def test_a_crash_is_found_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registries: None
) -> None:
    (tmp_path / "crashing_plugin.py").write_text(
        "import os\n"
        "from nnc.graph import Kernel, Rules, add_kernel, register\n"
        "register('crashing', Rules(infer=lambda x: x, reference=lambda x: x + 0))\n"
        "add_kernel('crashing', Kernel('planted', lambda i, o, p: os._exit(66), priority=99))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    report = fuzz.run(
        programs=3, modes=["compiled"], commands=["crashing"], imports=["crashing_plugin"], findings=1, shrinking=1.0
    )
    assert "crash: the process died" in only_finding(report) and "crashing" in report.findings[0]


@pytest.mark.slow
def test_a_process_that_gives_no_answer_shows_where_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registries: None
) -> None:
    (tmp_path / "waiting_plugin.py").write_text(
        "import time\n"
        "from nnc.graph import Kernel, Rules, add_kernel, register\n"
        "def waits_for_ever(inputs, outputs, params):\n"
        "    time.sleep(1000)\n"
        "register('waiting', Rules(infer=lambda x: x, reference=lambda x: x + 0))\n"
        "add_kernel('waiting', Kernel('planted', waits_for_ever, priority=99))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    for patience in (2.0, 10.0, 50.0):  # a busy machine may need longer than 2 s to start the process
        monkeypatch.setattr("nnc.testing.fuzz.campaign.PATIENCE", patience)
        report = fuzz.run(
            programs=3, modes=["compiled"], commands=["waiting"], imports=["waiting_plugin"], findings=1, shrinking=1.0
        )
        if "crash: no answer" in only_finding(report):
            break
    assert f"crash: no answer within {patience:g} s" in only_finding(report)
    assert "in waits_for_ever" in report.findings[0]


@pytest.mark.slow
def test_generated_programs_agree_with_references_in_all_modes() -> None:
    report = fuzz.run(programs=60, seed=8, findings=3)
    assert not report.findings, "\n\n".join(report.findings)
    assert report.programs == 60 and len(report.checks) > 15


def test_rounding_errors_are_no_findings() -> None:
    steps = (
        Step("b", "{0} * {1}", (Ref("a"), 1e6)),
        Step("c", "nnp.floor", (Ref("b"),)),
    )
    program = Program((Input("a", (50,), "float32", "uniform"),), Block(("a",), steps, ("c",)))
    subject = Subject.of(program)
    assert subject is not None

    def disturbed(k: float) -> Mode:
        return Mode(
            "off",
            lambda s: f"return nnp.floor(inputs()[0] * np.float32({k}) * 1e6)",
            lambda s: "return program(*inputs())",
        )

    assert check(subject, disturbed(1 + 2e-7)) is None
    found = check(subject, disturbed(1 + 1e-4))
    assert found is not None and found.kind == "value"


def elements_that_stay(name: str, *operands: Any, **params: Any) -> Any:
    """Which elements of a command's result no random error changes."""
    (result,) = results = [np.asarray(reference[command(name)](*operands, **params))]
    stays = np.ones(result.shape, bool)
    for seed in range(6):
        stays &= disturbed(np.random.default_rng(seed), command(name), operands, params, results)[0] == result
    return stays


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_rounded_elements_that_a_wider_dtype_does_not_show_are_not_exact(dtype: str) -> None:
    """Ten of 20,000 sums in float64 are by chance the same with eleven bits more."""
    x = np.random.default_rng(0).uniform(1, 2, (20_000, 7, 2)).view(np.complex128)[..., 0]
    x = x.astype(dtype) if dtype == "complex128" else x.real.astype(dtype)
    assert elements_that_stay("reduce_sum", x, axes=(1,)).mean() < 1e-4


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_elements_that_are_only_moved_or_have_few_bits_are_exact(dtype: str) -> None:
    rng = np.random.default_rng(0)
    parts = rng.uniform(-2, 2, (500, 7, 2))
    x = np.asarray(parts @ [1, 1j] if dtype == "complex128" else parts[..., 0]).astype(dtype)
    assert elements_that_stay("flip", x, axes=(0,)).all()
    assert elements_that_stay("reduce_sum", (rng.integers(-8, 9, (500, 7)) / 4).astype(dtype), axes=(1,)).all()


def test_a_sum_that_cancels_is_not_exact_where_the_order_decides() -> None:
    x = np.array([[1.0, 1e-40, -1.0], [1.0, -1.0, 1e-40], [1.0, 2.0, -3.0]], np.float32)
    assert elements_that_stay("reduce_sum", x[2:], axes=(1,)).all()
    assert not elements_that_stay("reduce_sum", x, axes=(1,))[:2].any()


def test_elementwise_results_of_few_bits_are_exact() -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (500,)).astype(np.float32)
    assert elements_that_stay("neg", x).all()
    assert elements_that_stay("mul", x, np.full(x.shape, 0.25, np.float32)).all()
    assert not elements_that_stay("mul", x, np.full(x.shape, 0.3, np.float32)).any()


@pytest.mark.unguarded  # the guard runs steps one by one, without the mode of their program
@pytest.mark.parametrize(("dtype", "small", "large"), [("float32", 1e-40, 1e38), ("float64", 1e-310, 1e300)])
def test_flushed_denormal_numbers_are_no_findings_in_modes_that_may_flush_them(
    dtype: str, small: float, large: float
) -> None:
    steps = (
        Step("b", "{0} * {1}", (Ref("a"), small)),
        Step("c", "{0} * {1}", (Ref("b"), large)),
        Step("d", "{0} != {1}", (Ref("b"), 0)),
    )
    subject = Subject.of(Program((Input("a", (3,), dtype, "ones"),), Block(("a",), steps, ("b", "c", "d"))))
    flushed = next(mode for mode in MODES if mode.name == "flushed")
    assert subject is not None and check(subject, flushed) is None
    assert (check(subject, replace(flushed, flushes=None)) is None) == (dtype == "float32")
    assert check(subject, replace(flushed, flushes=False)) is not None
    assert check(subject, next(mode for mode in MODES if mode.name == "not flushed")) is None
    changed = replace(flushed, source=lambda s: "return [x + 1e-30 for x in program(*inputs())[:2]]")
    assert check(subject, replace(changed, plain=lambda s: "return program(*inputs())[:2]")) is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_denormal_numbers_are_drawn_in_every_dtype(dtype: str) -> None:
    x = Input("a", (200,), dtype, "denormal").array()
    y, normal = np.abs(np.asarray(x).real.astype(np.float64)), smallest_normal(np.dtype(x.dtype))
    assert np.any((y > 0) & (y < normal)) and np.any(y == normal) and np.any(y == 1.5)


def test_programs_take_denormal_numbers() -> None:
    offers = all_offers()
    programs = [generate((5, i), offers) for i in range(60)]
    taken = [p for p in programs if any(x.kind == "denormal" for x in p.inputs)]
    assert taken and any(p.body.steps for p in taken)


@pytest.mark.parametrize("name", ["vjp", "eager vjp", "jvp", "checkpoint"])
def test_derivatives_at_infinities_and_nan_are_held_against_references(name: str) -> None:
    body = Block(("a",), (Step("b", "nnp.square", (Ref("a"),)),), ("b",))
    subject = Subject.of(Program((Input("a", (40,), "float64", "special"),), body))
    mode = next(mode for mode in MODES if mode.name == name)
    assert subject is not None and subject.specials and mode.applies(subject)
    assert check(subject, mode) is None

    def hidden(subject: Subject) -> str:
        source, result = mode.source(subject).rsplit("return ", 1)
        return f"{source}return [nnp.nan_to_num(x) for x in nnc.tree.leaves({result})]"

    found = check(subject, replace(mode, source=hidden, plain=mode.source))
    assert found is not None and found.kind == "value"


@pytest.mark.parametrize("pred", [True, False])
@pytest.mark.parametrize("name", ["cond", "switch"])
def test_branches_have_weak_numbers_where_nnc_has_them(name: str, pred: bool) -> None:
    x = nnc.asarray(0.25).as_weak()

    def strong(x: Any) -> Any:
        return x * np.float32(2), x, {"same": x}

    def weak(x: Any) -> Any:
        return x, x, {"same": x + 1}

    branches = (strong, weak) if name == "cond" else ([weak, strong],)
    found, wanted = (getattr(of, name)(nnc.asarray(int(pred)), *branches, x) for of in (Plain(), nnc))
    assert (
        [bool(leaf.weak) for leaf in nnc.tree.leaves(found)]
        == [bool(leaf.weak) for leaf in nnc.tree.leaves(wanted)]
        == [False, True, True]
    )
    assert nnc.tree.leaves(found) == nnc.tree.leaves(wanted)


def test_carried_values_are_weak_where_nnc_has_them() -> None:
    strong = nnc.asarray(np.float32(2))

    def rotate(carry: Any, x: Any) -> Any:
        a, _, c, d = carry
        nnc.debug.callback(lambda a: seen.append(np.asarray(a).item()), a)
        return (a + x, c * 1, a * strong, d * 2), a

    def counted(of: Any, count: int) -> Any:
        return of.fori_loop(0, count, lambda i, c: rotate(c, 1)[0], (1, 0.5, 0.25, 3.0))

    def repeated(of: Any) -> Any:
        return of.while_loop(lambda c: c[0] < 3, lambda c: rotate(c, 1)[0], (1, 0.5, 0.25, 3.0))

    def scanned(of: Any) -> Any:
        return of.scan(rotate, (0.5, np.float64(0.5), strong, 3.0), nnc.asarray([0.1, 0.2]).as_weak())

    for run in (scanned, repeated, *(lambda of, count=count: counted(of, count) for count in range(3))):
        found, wanted = (nnc.tree.leaves(run(of)) for of in (Plain(), nnc))
        assert [x.tolist() for x in found] == [x.tolist() for x in wanted]
        assert [(x.spec, x.weak) for x in found] == [(x.spec, x.weak) for x in wanted]
        half = len(seen) // 2
        assert seen[:half] == seen[half:]
        seen.clear()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("other", [np.float64(1), np.float32(1), np.float16(1), 3, 0.1])
def test_numbers_of_branches_take_the_dtype_of_the_other_branch_with_all_their_digits(other: Any, index: int) -> None:
    other = nnc.asarray(other) if isinstance(other, np.generic) else other
    branches = [lambda x: x, lambda x: other]
    for number in (1 / 3, nnc.asarray(0.25).as_weak()):
        found, wanted = (of.switch(nnc.asarray(index), branches, number) for of in (Plain(), nnc))
        assert found.item() == wanted.item()
        assert (found.spec, found.weak) == (wanted.spec, wanted.weak)


@pytest.mark.parametrize("call", ["nnp.linalg.norm", "nnp.var", "nn.layer_norm", "nn.group_norm({0}, 1)"])
@pytest.mark.parametrize("size", [1, 3])
def test_values_whose_slopes_are_kept_apart_are_differentiated_by_differences(call: str, size: int) -> None:
    body = Block(("a",), (Step("b", call, (Ref("a"),)),), ("b",))
    subject = Subject.of(Program((Input("a", (1, size), "float64", "uniform", 1),), body))
    assert subject is not None
    for mode in MODES:
        if mode.name in ("jvp by differences", "second by differences"):
            assert mode.applies(subject) and check(subject, mode) is None


def test_no_factor_of_an_integer_matrix_is_taken_for_exact() -> None:
    x = np.random.default_rng([399, 1]).integers(-5, 6, (7, 15)).astype("float32")
    results = run_reference(command("lu"), [x], {})
    moved = [disturbed(np.random.default_rng(k), command("lu"), [x], {}, results)[0] for k in range(4)]
    assert results[0][4, 14] == 0 and any(0 < abs(y[4, 14]) < 1e-4 for y in moved)


def test_no_singular_value_is_taken_for_exact() -> None:
    x = np.outer([0, 0, 3], [1, 2]).astype("float32")
    results = run_reference(command("svd"), [x], {})
    values = [disturbed(np.random.default_rng(k), command("svd"), [x], {}, results)[1][1] for k in range(9)]
    assert results[1][1] == 0 and 0 < max(map(abs, values)) < 1e-4


def test_weak_numbers_stay_weak_where_other_inputs_are_stacked() -> None:
    inputs = (Input("a", (3,), "int16"), Input("n", (), "int64", "number"))
    subject = Subject.of(Program(inputs, Block(("a", "n"), (Step("b", "{0} + {1}", (Ref("a"), Ref("n"))),), ("b",))))
    assert subject is not None and subject.results[0].dtype == np.int16
    for name in ("vmap", "scan"):
        mode = next(mode for mode in MODES if mode.name == name)
        assert check(subject, mode) is None
        names = define(subject.source(mode.source(subject)))
        assert {x.dtype.name for x in nnc.tree.leaves(names["run"]()) if x.shape} == {"int16"}


def test_phases_of_complex_eigenvectors_are_not_held_against_differences() -> None:
    """A derivative follows one choice of phases, LAPACK's values another."""

    def subject(command: str, dtype: str) -> Subject:
        body = Block(("a",), (Step("b", f"nnp.linalg.{command}", (Ref("a"),)),), ("b",))
        found = Subject.of(Program((Input("a", (2, 2), dtype, "uniform"),), body))
        assert found is not None
        return found

    assert subject("eigvals", "complex128").surrogates
    assert not subject("eigvalsh", "float64").surrogates and not subject("det", "complex128").surrogates


def test_the_sign_of_nan_decides_nothing() -> None:
    x = np.array([np.nan, -1.0, 2.0])
    stays = np.ones(3, bool)
    for seed in range(6):
        (found,) = disturbed(np.random.default_rng(seed), command("signbit"), [x], {}, [np.signbit(x)])
        stays &= found == np.signbit(x)
    assert stays.tolist() == [False, True, True]


def test_programs_that_round_on_the_way_are_not_held_against_differences() -> None:
    steps = (
        Step("b", "nnp.asarray({0}, dtype='bfloat16') * 2.0", (Ref("a"),)),
        Step("c", "{0} * {1}", (Ref("a"), Ref("b"))),
    )
    subject = Subject.of(Program((Input("a", (3,), "float64"),), Block(("a",), steps, ("c",))))
    assert subject is not None and subject.results[0].dtype == np.float64 and not subject.precise


def test_infinities_that_cancel_in_a_backward_pass_are_not_held_against_columns() -> None:
    def subject(*steps: Step) -> Subject:
        found = Subject.of(Program((Input("a", (1,), "float32"),), Block(("a",), steps, ("c",))))
        assert found is not None
        return found

    mode = next(mode for mode in MODES if mode.name == "vjp by columns")
    zero = Step("b", "{0} % {1}", (Ref("a"), Ref("a")))
    cancels = subject(zero, Step("c", "nnp.cbrt({0})", (Ref("b"),)))
    assert check(cancels, mode) is None and _meets_infinities(cancels, mode)
    assert not _meets_infinities(subject(zero, Step("c", "nnp.exp({0})", (Ref("b"),))), mode)


def test_infinities_in_fourier_transforms_are_not_held_against_another_order_of_sums() -> None:
    def found(call: str, kind: str) -> bool:
        body = Block(("a",), (Step("b", call, (Ref("a"),)),), ("b",))
        subject = Subject.of(Program((Input("a", (16,), "float32", kind),), body))
        assert subject is not None
        return _transforms_infinities(subject)

    assert found("nnp.fft.fft", "special") and found("nnp.fft.rfft", "special")
    assert not found("nnp.fft.fft", "uniform") and not found("nnp.exp", "special")
