"""The table of operators in docs/onnx.md. `python -m tests.unit.onnx.page` renews it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import onnx

from nnc.onnx.operators import families
from nnc.onnx.operators.table import OPERATORS

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
BEGIN, END = "this table -->\n", "<!-- end -->"


def with_functions() -> dict[str, list[str]]:
    """Names of operators with functions of their own, by domain."""
    found = defaultdict(list)
    for domain, name in OPERATORS:
        found[domain or "ai.onnx"].append(name)
    return {domain: sorted(names) for domain, names in sorted(found.items())}


def by_definition() -> list[str]:
    """Operators that run by the standard's definition."""
    schemas = onnx.defs.get_all_schemas()
    defined = {(s.domain, s.name) for s in schemas if s.has_function or s.has_context_dependent_function}
    return sorted(f"{domain}:{name}".lstrip(":") for domain, name in defined - OPERATORS.keys())


def missing() -> list[str]:
    """Operators of the standard that cannot run."""
    schemas = onnx.defs.get_all_schemas()
    known = {(s.domain, s.name) for s in schemas if s.has_function or s.has_context_dependent_function or s.deprecated}
    names = {(s.domain, s.name) for s in schemas} - known - OPERATORS.keys()
    return sorted(f"{domain}:{name}".lstrip(":") for domain, name in names)


def table() -> str:
    """The rows of the page."""
    assert families
    rows = [*with_functions().items(), ("by definition", by_definition()), ("missing", missing())]
    lines = ["", "| domain | operators |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {domain} | {', '.join(names)} |" for domain, names in rows), "", ""])


def page(text: str) -> str:
    """The page with the present table."""
    begin = text.index(BEGIN) + len(BEGIN)
    return text[:begin] + table() + text[text.index(END) :]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
