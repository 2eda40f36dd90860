"""Docstrings, comments and error texts use plain words: nouns in the place of "what" and "who", the field's terms for private ones.

An opening such as "What a step reads" names no action and no thing, and a clause such as "frees what it holds" names no object: a
stranger to the file has to guess. "Frees its buffers" is as long.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("nnc", "tests", "benchmarks", "examples", "emulation", "mutation")
SUMMARIES = ("How", "Where", "When", "Why", "By", "Of", "As", "If")  # a clause without a verb or a noun
OPENINGS = ("What", "That", "Those", "Who", "Whoever", "Whatever")
TERMS = {  # a private term, and the field's own
    "whoever": "the caller, or the noun",
    "give away": "donate",
    "gives away": "donates",
    "given away": "donated",
    "giving away": "donating",
    "dear": "expensive",
    "dearer": "more expensive",
    "dearest": "most expensive",
    "likeness": "pattern of calls",
    "round of a loop": "iteration of a loop",
    "round of the loop": "iteration of the loop",
    "rounds of a loop": "iterations of a loop",
    "rounds of the loop": "iterations of the loop",
    "rounds of loops": "iterations of loops",
    "written to ahead": "prefetched",
    "touched ahead": "prefetched",
    "made ahead": "prefetched, or made in advance",
}
OPENING = re.compile(rf"(?:\A|[.;:!?]\s+|\n\s*\n)\W*({'|'.join(OPENINGS)})\b")
CLAUSE = re.compile(r"\b(?:what|whatever|who|whom|whoever)\b(?!:)", re.IGNORECASE)  # "what: " is a parameter
RIDDLE = re.compile(r"^ *(?:async )?def test_\w*?(?<=_)(what|whatever|who|whom|whoever)(?=[_(])", re.MULTILINE)
TERM = re.compile(rf"\b(?:{'|'.join(TERMS)})\b")
# Text that is no sentence of the author's: names and code in backticks, examples with their output.
NO_WORDS = re.compile(r"`[^`\n]*`|^ *>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
OWNERS = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def docstrings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, OWNERS) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0].value
            yield text.lineno, text.value


def summaries(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields the line and the first word of the docstring of each class and function."""
    for node in nodes:
        if isinstance(node, OWNERS[1:]) and ast.get_docstring(node):
            yield node.body[0].lineno, node.body[0].value.value.split()[0]


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# -")


def error_texts(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for call in nodes:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "user_error":
            for node in ast.walk(call):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.lineno, node.value


def offences(source: str) -> list[str]:
    """Returns the line and the rule of each offence."""
    found: list[str] = []
    nodes = list(ast.walk(ast.parse(source)))
    for first, text in (*docstrings(nodes), *comments(source), *error_texts(nodes)):
        words = NO_WORDS.sub(lambda match: "`" + "\n" * match[0].count("\n"), text)
        for match in OPENING.finditer(words):
            line = first + words.count("\n", 0, match.start(1))
            found.append(f"{line}: a sentence begins with {match[1]}; say what a function does, or what a class is")
        for match in CLAUSE.finditer(words):
            line = first + words.count("\n", 0, match.start())
            found.append(
                f"{line}: a clause begins with {match[0]!r}; write the noun: the operand, the result, the caller"
            )
        for match in TERM.finditer(words):
            line = first + words.count("\n", 0, match.start())
            found.append(f"{line}: {match[0]!r} is a private term; write {TERMS[match[0]]}")
    for match in RIDDLE.finditer(source):
        line = 1 + source.count("\n", 0, match.start())
        found.append(f"{line}: a test's name has the clause {match[1]!r}; write the noun")
    for line, word in summaries(nodes):
        if word in SUMMARIES:
            found.append(
                f"{line}: a docstring begins with {word}; begin with a verb or a noun: The number of, The address of"
            )
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_name_their_subject_in_the_terms_of_the_field(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = [
        f"{path.relative_to(ROOT)}:{offence}"
        for path in paths
        if path != Path(__file__)
        for offence in offences(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""What a step reads."""', 1),
        ('"""A step.\n\nThose of a loop count twice."""', 3),
        ('def f():\n    """Returns the views. That of a tape is whole."""', 2),
        ("x = 1  # Whoever asks", 1),
        ("# -- What follows\nx = 1", 1),
        ("class A:\n    # the rounds of a loop\n    x = 1", 2),
        ('"""Frees\narguments that are given away."""', 2),
        ('"""Frees\nwhat the loop carries."""', 2),
        ("x = 1  # for nobody who waits", 1),
        ('def f():\n    """How many there are."""', 2),
        ("x = 1\ndef test_it_keeps_what_it_holds(): ...", 2),
        ('raise user_error(\n    E, where, f"{x} is lost.", fix="pass what was returned."\n)', 2),
    ],
)
def test_an_offence_is_found_in_its_line(source: str, line: int) -> None:
    assert any(offence.startswith(f"{line}: ") for offence in offences(source))


def test_code_and_examples_are_no_sentences() -> None:
    text = (
        '"""Returns `That`, the likeness of calls: `whoever`.\n\nExample:\n    >>> f(1)\n    What a call prints.\n"""'
    )
    assert [offence.partition(";")[0] for offence in offences(text)] == ["1: 'likeness' is a private term"]
    assert offences('print("What is printed, is no comment")  # shown') == []
