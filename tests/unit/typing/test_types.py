"""Type checkers see the types of arguments and results: mypy reads four programs of users, once for all tests here."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_overloads

import pytest

import nnc
import nnc.nn.initializers
import nnc.nn.models
import nnc.numpy.fft
import nnc.numpy.linalg
import nnc.typing
from tests.unit.typing import modelling, training

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = ("training", "modelling")
LINE = re.compile(r"tests/unit/typing/(?P<file>\w+)\.py:(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)")


NAMESPACES: tuple[Any, ...] = (
    nnc, nnc.numpy, nnc.numpy.linalg, nnc.numpy.fft, nnc.nn, nnc.nn.initializers, nnc.nn.models, nnc.optim, nnc.random,
    nnc.tree, nnc.io, nnc.data, nnc.debug, nnc.testing, nnc.view, nnc.errors, nnc.typing,
)  # fmt: skip
ANY = {  # results that Python's types cannot describe, by reason
    *("nnc.numpy.ndarray.item", "nnc.numpy.ndarray.tolist"),  # numbers of the dtype, as in NumPy
    "nnc.numpy.gradient",  # one array for a vector, else a list
    "nnc.numpy.einsum_path",  # as in NumPy: a list that begins with a string
    "nnc.numpy.vectorize",  # the function's results, or a decorator
    *("nnc.nn.Sequential.__call__", "nnc.nn.models.VGG.__call__"),  # with stateful layers, also the new module
    *("nnc.nn.Checkpoint.__call__", "nnc.nn.Tied.__call__", "nnc.nn.Tied.whole"),  # the wrapped module's
    *(
        f"nnc.nn.{norm}.{method}" for norm in ("SpectralNorm", "WeightNorm") for method in ("__call__", "merged")
    ),  # likewise
    *("nnc.nn.Run.result", "nnc.nn.field"),
    *("nnc.tree.unflatten", "nnc.tree.transpose", "nnc.tree.broadcast_prefix", "nnc.io.load"),  # read from a structure
    "nnc.DynamicGraph.evaluate",
    "nnc.optim.value_and_grad_from_state",
    "nnc.testing.central_difference",  # a tree of NumPy arrays
}


def results_of_type_any(module: Any) -> Iterator[str]:
    """Yields the names of public functions and methods of which an overload returns Any."""
    for name in module.__all__:
        value = getattr(module, name)
        methods = {**vars(value)} if inspect.isclass(value) else {}
        public = {f"{name}.{key}": method for key, method in methods.items() if key == "__call__" or key[0] != "_"}
        for path, function in ({name: value} | public).items():
            function = inspect.unwrap(getattr(function, "fget", None) or getattr(function, "__func__", function))
            if inspect.isfunction(function):
                forms = get_overloads(function) or [function]
                if any(re.search(r"\bAny\b", str(form.__annotations__.get("return"))) for form in forms):
                    yield f"{module.__name__}.{path}"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    """Runs mypy, and returns its messages by (file, line)."""
    cache = tmp_path_factory.mktemp("mypy")
    files = [str(HERE / f"{name}.py") for name in (*PROGRAMS, "reveals", "mistakes")]
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--explicit-package-bases",
        "--disable-error-code=empty-body", f"--cache-dir={cache}", *files,
    ]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    messages: dict[tuple[str, int], list[str]] = {}
    for match in map(LINE.match, found.stdout.splitlines()):
        if match is not None:
            messages.setdefault((match["file"], int(match["line"])), []).append(f"{match['kind']}: {match['text']}")
    return messages


def expectations(file: str) -> dict[int, str]:
    """Returns the text of each comment by the line that it stands above."""
    lines = (HERE / f"{file}.py").read_text().splitlines()
    return {i + 1: line.strip("# ") for i, line in enumerate(lines, 1) if line.startswith("    # ")}


def errors(said: dict[tuple[str, int], list[str]], file: str) -> dict[int, list[str]]:
    return {
        line: [text.removeprefix("error: ") for text in texts if text.startswith("error")]
        for (name, line), texts in said.items()
        if name == file and any(text.startswith("error") for text in texts)
    }


def shortened(revealed: str) -> str:
    """Returns a type as mypy writes it, without the names of modules and with the names of unions."""
    text = re.sub(
        r"(Array|nnc\.array\.Array) \| numpy\.ndarray\[.*?\]\] \| numpy\.generic\[Any\] \| complex", "Leaf", revealed
    )
    return re.sub(r"\b[a-z_]\w*\.(?=[a-zA-Z_])", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_users_program_has_no_errors_and_no_any(said: dict[tuple[str, int], list[str]], program: str) -> None:
    assert errors(said, program) == {}


@pytest.mark.slow
def test_transforms_have_the_types_on_record(said: dict[tuple[str, int], list[str]]) -> None:
    assert errors(said, "reveals") == {}
    expected = expectations("reveals")
    revealed = {
        line: shortened(re.findall(r'Revealed type is "(.*)"', texts[0])[0])
        for (name, line), texts in said.items()
        if name == "reveals"
    }
    assert revealed == expected
    assert len(expected) > 90


@pytest.mark.slow
def test_mistakes_are_found_by_type_checkers(said: dict[tuple[str, int], list[str]]) -> None:
    found, expected = errors(said, "mistakes"), expectations("mistakes")
    assert found.keys() == expected.keys()
    missed = {}
    for line, text in expected.items():
        code, words = text.split(": ", 1)
        if not any(error.endswith(f"[{code}]") and words in error for error in found[line]):
            missed[line] = (text, found[line])
    assert missed == {}


def test_the_users_programs_run() -> None:
    assert training.main() < 0.3
    loss, zero, root, counted = modelling.main()
    assert loss < 1.0 and zero == 0 and counted == 64 * (4 * 16 + 16 + 16 * 3 + 3) + 4
    assert abs(root - 2**0.5) < 1e-6


def test_results_of_public_functions_have_types() -> None:
    found = {name for module in NAMESPACES for name in results_of_type_any(module)}
    assert found == ANY


def test_public_namespaces_list_public_names_alone() -> None:
    for module in NAMESPACES:
        assert dir(module) == sorted(module.__all__), module.__name__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "nnc" / "py.typed").read_text() == ""
