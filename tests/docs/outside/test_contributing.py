"""The examples of CONTRIBUTING.md hold, as they are printed there: a command, a pass and a kernel."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.commands.elementwise as family
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.commands.rules import check_dtype
from nnc.graph import Command, TensorSpec, check_rule, register
from nnc.graph.rules import Rules
from nnc.lower.kernels.scalar_checks import check_scalar
from nnc.testing import check_grads
from tests.unit.backends.cpu.against_reference import LAYOUTS, REAL, NDArray, check, values
from tests.unit.lower.kernels.test_scalars import cases
from tests.unit.lower.kernels.test_scalars import test_a_printed_command_agrees_with_its_reference as check_printed
from tests.unit.lower.passes.tools import evaluate, names, run

pytestmark = pytest.mark.usefixtures("own_registries")
PAGE = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
X = np.linspace(-3, 3, 60, dtype=np.float32).reshape(12, 5)


def example(start: str) -> str:
    """The example of the page that begins with these words."""
    blocks = [textwrap.dedent(found) for found in re.findall(r"(?:^(?: {4,}.*)?\n)+", PAGE, re.MULTILINE)]
    (wanted,) = [block.strip("\n") for block in blocks if block.strip("\n").startswith(start)]
    return wanted


def names_made_by(source: str, **known: Any) -> dict[str, Any]:
    made = dict(known)
    exec(compile(source, "CONTRIBUTING.md", "exec"), made)
    return made


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def softsign() -> Command:
    made = names_made_by(example("softsign: Command"), **vars(family))["softsign"]
    assert isinstance(made, Command)
    return made


def test_the_command_of_the_page_is_differentiated_and_batched(softsign: Command) -> None:
    np.testing.assert_allclose(softsign(X), X / (1 + np.abs(X)), rtol=1e-6)
    check_grads(softsign, (np.asarray([0.5, -2.0]),), order=2)
    np.testing.assert_array_equal(nnc.vmap(softsign)(X), softsign(X))


def test_the_expression_of_the_command_of_the_page_is_that_of_its_reference(softsign: Command) -> None:
    check_scalar(softsign, "x / (1 + abs(x))")
    assert {case.output.name for case in cases(softsign)} == {"float16", "bfloat16", "float32", "float64"}
    check_printed(softsign)


def test_the_command_of_the_page_is_fused_with_its_neighbours(softsign: Command) -> None:
    text = nnc.compile(lambda x: nnp.sin(softsign(x * 2)) + x).lower(X).compile().as_text()
    assert "fused(" in text and "softsign(" not in text and ": 1 steps" in text


# -- the pass ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pass_of_the_page() -> dict[str, Any]:
    return names_made_by(example("from typing import Any\n\nfrom nnc.base.options"))


def test_the_pass_of_the_page_has_the_effect_that_it_states(pass_of_the_page: dict[str, Any]) -> None:
    graph = nnc.make_graph(lambda x, y: nnp.exp(x) * nnp.exp(y))(X, -X)
    after = run(graph, "join_exponentials")
    assert names(graph) == ["exp", "exp", "mul"] and names(after) == ["add", "exp"]
    np.testing.assert_allclose(evaluate(after, [X, -X])[0], evaluate(graph, [X, -X])[0], rtol=1e-6)
    check_rule(pass_of_the_page["product_of_exponentials"])


def test_the_pass_of_the_page_leaves_exponentials_that_are_read_again(pass_of_the_page: dict[str, Any]) -> None:
    graph = nnc.make_graph(lambda x, y: (e := nnp.exp(x)) * nnp.exp(y) + e)(X, X)
    assert run(graph, "join_exponentials").nodes == graph.nodes


def test_the_page_shows_the_effect_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = example("from nnc.graph import run_passes")
    names_made_by(shown, nnc=nnc, f=lambda x: nnp.negative(nnp.negative(x)) * 2, x=X)
    text = capsys.readouterr().out
    assert "mul(" in text and "neg(" not in text


# -- the kernel --------------------------------------------------------------------------------------------------------


@pytest.fixture
def products_behind() -> Command:
    """The command that the page's kernel is for, with that kernel."""

    def infer(x: TensorSpec, *, axis: int) -> TensorSpec:
        check_dtype("products_behind", x, lambda dtype: not dtypes.is_bool(dtype), "numeric")
        return x

    def reference(x: NDArray, *, axis: int) -> NDArray:
        wide = np.flip(x, axis).astype(dtypes.accumulator(x.dtype))
        with np.errstate(all="ignore"):
            return np.flip(np.cumprod(wide, axis, dtype=wide.dtype), axis).astype(x.dtype)

    made = register("products_behind", Rules(infer=infer, reference=reference))
    names_made_by(example("from nnc.backends.printer import Bound"))
    return made


@pytest.mark.parametrize("kind", [kind for kind in REAL if kind != "bool"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), 0), ((70,), 0), ((0, 4), 1), ((4, 0), 1), ((2, 3, 4), -2), ((40000, 3), 1)]
)
def test_the_kernel_of_the_page_gives_the_numbers_of_the_reference(
    products_behind: Command, kind: str, shape: tuple[int, ...], axis: int
) -> None:
    check("products_behind", [values(kind, shape)], {"axis": axis}, tolerance=0)


def test_the_kernel_of_the_page_reads_and_writes_memory_however_it_lies(products_behind: Command) -> None:
    for layout in LAYOUTS:
        for axis in (0, 1):
            check("products_behind", [layout(np.tile(1 + X / 64, (3, 2)))], {"axis": axis}, layout)


def test_programs_run_the_kernel_of_the_page(products_behind: Command) -> None:
    compiled = nnc.compile(lambda x: products_behind(x * 2, axis=0))
    np.testing.assert_allclose(compiled(X), np.flip(np.cumprod(np.flip(X * 2, 0), 0), 0), rtol=1e-5)
    assert re.search(r"products_behind\(.*\[cpu\]", compiled.lower(X).compile().as_text())
