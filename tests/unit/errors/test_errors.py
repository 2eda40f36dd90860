"""The house form of errors: line, operands and fix; and tracebacks that end in the user's line."""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import errors
from nnc.base import source
from nnc.base.context import activity, set_context
from nnc.errors import NncError, ShapeError, user_error


def here() -> int:
    return sys._getframe(1).f_lineno


def test_a_user_error_has_the_house_form() -> None:
    operands = {"left": "f32[2]", "right": "f32[3]"}
    with activity("tracing loss for grad"), activity("tracing step for compile"):
        error = user_error(ShapeError, "matmul", "sizes differ.", operands=operands, fix="transpose.")
    line = here() - 1
    assert str(error).splitlines() == [
        "matmul: sizes differ.",
        "  left f32[2]   right f32[3]",
        f"  at {source.short_path(__file__)}:{line} in test_a_user_error_has_the_house_form:   "
        + Path(__file__).read_text().splitlines()[line - 1].strip(),
        "  while tracing step for compile",
        "  while tracing loss for grad",
        "Fix: transpose.",
    ]


def test_the_classes_are_also_python_s_own() -> None:
    for kind, base in (
        (errors.ShapeError, ValueError), (errors.DTypeError, TypeError), (errors.ArgumentError, ValueError),
        (errors.ArgumentTypeError, TypeError), (errors.TreeError, ValueError), (errors.TraceError, TypeError),
        (errors.OutOfBoundsError, IndexError), (errors.UnsupportedError, NotImplementedError),
        (errors.BackendError, RuntimeError), (errors.MemoryBudgetError, MemoryError),
    ):  # fmt: skip
        assert issubclass(kind, base) and issubclass(kind, NncError)
    assert not issubclass(errors.InternalError, NncError)


def test_a_source_line_that_cannot_be_read_is_only_its_place() -> None:
    line = source.SourceLine("<stdin>", 3, "f")
    assert line.text == ""
    assert line.describe() == "<stdin>:3 in f"


def test_paths_are_shown_relative_where_that_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert source.short_path(str(tmp_path / "a" / "b.py")) == str(Path("a") / "b.py")
    assert source.short_path("/x.py") == "/x.py"


def test_the_source_of_an_error_is_the_innermost_line_of_the_user() -> None:
    def inner(x: Any) -> Any:
        return x @ nnp.ones(5)

    def loss(x: Any) -> Any:
        return inner(x).sum()

    for call in (loss, nnc.compile(loss), nnc.grad(loss), nnc.make_graph(loss), lambda x: nnc.vmap(loss)(x[None])):
        with pytest.raises(NncError) as caught:
            call(nnp.ones(3))
        assert re.search(r"at \S*test_errors\.py:\d+ in \S*inner:   return x @ nnp\.ones\(5\)", str(caught.value))


def test_activities_are_listed_innermost_first() -> None:
    def loss(x: Any) -> Any:
        return (x @ nnp.ones(5)).sum()

    with pytest.raises(NncError) as caught:
        nnc.compile(nnc.grad(loss))(nnp.ones(3))
    whiles = re.findall(r"^  while (.*)$", str(caught.value), re.MULTILINE)
    assert len(whiles) == 2
    assert "grad" in whiles[0] and "compile" in whiles[1]


def test_an_explicit_source_and_one_of_the_context_come_first() -> None:
    there = source.SourceLine("train.py", 41, "loss")
    assert "at train.py:41 in loss" in str(user_error(ShapeError, "f", "x.", source=there))
    with set_context(source=there):
        assert "at train.py:41 in loss" in str(user_error(ShapeError, "f", "x."))


def test_nodes_know_the_line_that_made_them() -> None:
    def fun(x: Any) -> Any:
        y = nnp.sin(x)
        return y.sum() * 2

    graph = nnc.make_graph(fun)(nnp.ones(3))
    lines = [node.source.text for node in graph.nodes if node.source is not None]
    assert lines[0] == "y = nnp.sin(x)"
    assert set(lines[1:]) == {"return y.sum() * 2"}


def test_errors_of_a_running_program_name_the_line_that_made_the_step() -> None:
    def pick(x: Any, i: Any) -> Any:
        y = x * 2
        return y[i] + 1

    with pytest.raises(IndexError, match=r"(?s)test_errors.py:\d+ in .*pick:   return y\[i\] \+ 1"):
        nnc.compile(pick)(nnp.ones(3), 5)


def test_tracebacks_of_compiled_functions_hold_at_most_one_frame_of_nnc() -> None:
    def inner(x: Any) -> Any:
        return x @ nnp.ones(5)

    @nnc.compile
    def step(x: Any) -> Any:
        return inner(x)

    with pytest.raises(NncError) as caught:
        step(nnp.ones(3))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == "return x @ nnp.ones(5)"
    assert sum("nnc" in Path(frame.filename).parts[-2:-1] for frame in frames) <= 1
    assert "".join(traceback.format_exception(caught.value)).count("contracting sizes differ") == 1


def test_files_of_nnc_are_internal_and_those_of_users_are_not() -> None:
    assert source.is_internal(nnc.compiled.compiled.__file__)
    assert not source.is_internal(__file__)
    assert not source.is_internal("/home/me/nnc_experiments/train.py")
    assert not source.is_internal("/home/me/optree/my_functools.py")


def test_code_without_a_file_still_gets_an_error_with_a_place() -> None:
    program = "import nnc.numpy as nnp\nnnp.ones(3) @ nnp.ones(4)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ShapeError: matmul" in done.stderr
    assert "at <string>:2 in <module>" in done.stderr
    assert "Fix: " in done.stderr


def test_numpy_mistakes_inside_nnc_functions_are_no_bare_numpy_errors() -> None:
    with pytest.raises(NncError, match="Fix: "):
        nnp.ones(3) + np.ones(4)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: nnc.compile(lambda x: np.linalg.norm(x))(nnp.ones(3)),
        lambda: nnc.compile(lambda x: statistics.mean([x, math.sqrt(x)]))(1.0),
        lambda: nnc.compile(abs, precision="fp8"),
        lambda: nnc.grad(lambda x: np.linalg.norm(x))(nnp.ones(3)),
    ],
)
def test_an_error_within_another_library_names_the_line_that_calls_it(mistake: Callable[[], object]) -> None:
    with pytest.raises(NncError) as caught:
        mistake()
    assert re.search(r"^  at \S*test_errors.py:\d+ in ", str(caught.value), re.MULTILINE), caught.value


def test_an_installed_package_is_the_user_where_nobody_else_is() -> None:
    """The calling frames of this test are hidden behind a thread, whose frames are of the standard library."""
    found: list[source.SourceLine | None] = []
    code = compile("found.append(look())", "/venv/lib/python3/site-packages/model/train.py", "exec")
    thread = threading.Thread(target=types.FunctionType(code, {"found": found, "look": source.user_source}))
    thread.start()
    thread.join()
    assert str(found[0]) == "/venv/lib/python3/site-packages/model/train.py:1 in <module>"


def test_installed_packages_and_the_standard_library_are_not_the_users_program() -> None:
    assert all(source.is_installed(str(module.__file__)) for module in (nnc, np, statistics, pytest))
    assert not source.is_installed(__file__)
    assert not source.is_installed("/home/me/site-packages-tools/train.py")


def test_a_warning_of_the_cache_names_the_users_line(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import nnc, nnc.numpy as nnp\n\nnnc.compile(lambda x: x * 3 + 1)(nnp.ones(3))\n")
    folder = tmp_path / "taken"
    folder.write_text("a file, so that no cache can be there")
    environment = {**os.environ, "NNC_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment, check=True)
    assert f"{program}:3: RuntimeWarning: nnc keeps nothing in" in done.stderr, done.stderr
