"""The tables of docs/rooms/passes.md: passes by phase, with the first lines of their docstrings and their facts; and all facts.

python -m tests.unit.lower.passes.page        renews them
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

from nnc.graph import find_pass
from nnc.graph.passes import Fact
from nnc.lower.phases import PHASES, TRACED, names_of

PAGE = Path(__file__).parents[4] / "docs" / "rooms" / "passes.md"
BEGIN, END = "<!-- begin: python -m tests.unit.lower.passes.page -->\n", "<!-- end -->"


def _names(facts: Iterable[Fact]) -> str:
    return ", ".join(fact.name for fact in Fact if fact in facts)


def tables() -> Iterator[str]:
    """Yields the lines of both tables."""
    yield from ("| phase | pass | effect | requires | ensures | invalidates |", "| --- | --- | --- | --- | --- | --- |")
    for phase in PHASES:
        for i, name in enumerate(names_of((phase,))):
            step = find_pass(name)
            function = getattr(step.function, "find", lambda at=step.function: at)()  # imports it, where that waits
            effect = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            facts = " | ".join(map(_names, (step.requires, step.ensures, step.invalidates)))
            yield f"| {phase.name if not i else ''} | `{name}` | {effect} | {facts} |"
    yield from ("", "| fact | meaning |", "| --- | --- |")
    yield from (f"| {fact.name} | {fact.value}{' Traced graphs have it.' * (fact in TRACED)} |" for fact in Fact)


def page(text: str) -> str:
    """The page with tables of today."""
    head, _, rest = text.partition(BEGIN)
    return "\n".join([f"{head}{BEGIN}", *tables(), "", END + rest.partition(END)[2]])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
