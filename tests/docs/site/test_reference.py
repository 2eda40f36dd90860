"""Each public name has its entry in the reference, with a text."""

from __future__ import annotations

import doctest
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("griffe")  # the tests that need a GPU run where it is missing
import griffe

import nnc
from docs.reference import documented, entry_of, modules, pages, public_names
from docs.runtime_names import RuntimeNames, has_docstring

ROOT = Path(__file__).parents[3]
HEADING = re.compile(r'"heading": "(.*?)"')
LISTED = ROOT / "tests" / "docs" / "public_signatures.txt"


@pytest.fixture(scope="module")
def package() -> griffe.Object | griffe.Alias:
    return griffe.load("nnc", search_paths=[str(ROOT)], extensions=griffe.load_extensions(RuntimeNames))


def headings() -> Counter[str]:
    return Counter(name for text in pages().values() for name in HEADING.findall(text))


def test_each_name_with_a_signature_stands_on_one_page() -> None:
    found = headings()
    names = {line.partition("(")[0] for line in LISTED.read_text(encoding="utf-8").splitlines()}
    classes = {name for name in names if name.rpartition(".")[0] in names}  # methods stand below their class
    doubles = {"nnc.view.view"}  # it is nnc.view
    assert not sorted(names - classes - doubles - set(found))
    assert not [name for name, times in found.items() if times > 1]


def test_each_module_lists_its_names() -> None:
    found = headings()
    for where, module in modules().items():
        assert [name for name in documented(module) if f"{where}.{name}" in found] == documented(module)
        assert set(documented(module)) <= set(public_names(module))


def test_each_entry_has_a_text_in_the_source_or_from_the_object(package: griffe.Object) -> None:
    entries = {entry_of(module, name) for module in modules().values() for name in documented(module)}
    assert not [entry for entry in sorted(entries) if not has_docstring(package, entry.partition(".")[2])]


@pytest.mark.parametrize(
    "name", ["numpy.cos", "numpy.radians", "numpy.pi", "numpy.float32", "view.view", "optim.sam.sam"]
)
def test_names_that_are_made_when_nnc_is_imported_have_parameters_and_texts(package: griffe.Object, name: str) -> None:
    entry = package[name]
    assert entry.docstring.value
    if name == "numpy.cos":
        assert [parameter.name for parameter in entry.parameters] == ["x"]


def test_examples_are_read_as_examples(package: griffe.Object) -> None:
    sections = package["trace.core.differentiate.grad"].docstring.parse("google")
    assert "examples" in {section.kind.value for section in sections}


def texts(package: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """Yields the path of each entry, and the object whose docstring the reference shows."""
    for module in modules().values():
        for name in documented(module):
            found = package[entry_of(module, name).partition(".")[2]]
            yield f"{module.__name__}.{name}", found.final_target if found.is_alias else found


def test_each_entry_has_an_example(package: griffe.Object) -> None:
    assert not [path for path, found in texts(package) if ">>> " not in found.docstring.value]


def test_examples_of_constants_and_types_run(package: griffe.Object) -> None:
    """pytest runs the docstrings of functions and classes; those below an assignment are known to griffe alone."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for path, found in texts(package):
        if found.is_attribute:
            names = {"nnc": nnc, "nnp": nnc.numpy, "np": np, **vars(importlib.import_module(found.module.path))}
            runner.run(parser.get_doctest(found.docstring.value, names, path, None, None))
    tried = runner.summarize(verbose=False)
    assert not tried.failed
    assert tried.attempted > 40
