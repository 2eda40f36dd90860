"""Pages for users of other libraries: their tables are those of nnc/errors/names.

python -m tests.unit.errors.names.pages        renews them below the line that begins with `<!-- begin`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nnc.errors.names import TABLES, Row, code_of, note_of

DOCS = Path(__file__).parents[4] / "docs"
BEGIN, END = "<!-- begin", "<!-- end -->"
PAGES = {
    "migration_jax.md": ("jax",),
    "migration_pytorch.md": ("torch",),
    "migration_equinox_optax_flax.md": ("equinox", "optax", "flax"),
}


def tables_of(libraries: tuple[str, ...]) -> list[str]:
    """The modules of these libraries that have a table."""
    return [name for library in libraries for name in TABLES if name == library or name.startswith(f"{library}.")]


def is_same(source: str, name: str, row: Row) -> bool:
    """Whether nnc's name is the other library's, in a module of nnc."""
    code = code_of(row).partition("(")[0]
    return not note_of(row) and code.rpartition(".")[2] == name and code.startswith("nnc.") and " " not in code_of(row)


def lines_of(source: str) -> Iterator[str]:
    """Yields the heading, the sentence and the table of a module."""
    rows = dict(sorted(TABLES[source].items(), key=lambda item: item[0].lower()))
    same = {name: code_of(row).partition("(")[0] for name, row in rows.items() if is_same(source, name, row)}
    yield from (f"## {source}", "")
    modules = dict.fromkeys(own.rpartition(".")[0] for own in same.values())
    for module in modules:
        names = ", ".join(f"`{name}`" for name, own in same.items() if own == f"{module}.{name}")
        yield from (f"Under the same name in `{module}`: {names}.", "")
    yield from (f"| {source} | nnc | |", "| --- | --- | --- |")
    for name, row in rows.items():
        if name not in same:
            code, note = (text.replace("|", "\\|") for text in (code_of(row), note_of(row)))
            yield f"| `{name}` | `{code}` | {note} |"
    yield ""


def page_of(text: str, libraries: tuple[str, ...]) -> str:
    """A page with tables of today."""
    head, _, rest = text.partition(BEGIN)
    begin = rest.partition("\n")[0]
    lines = [line for source in tables_of(libraries) for line in lines_of(source)]
    return "\n".join([f"{head}{BEGIN}{begin}", "", *lines, END, ""])


if __name__ == "__main__":
    for file, libraries in PAGES.items():
        (DOCS / file).write_text(page_of((DOCS / file).read_text(encoding="utf-8"), libraries), encoding="utf-8")
