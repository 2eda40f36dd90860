"""Differences between golden texts, for people: lines that merely moved are left out where something else changed, too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

RENEW = "python -m tests.golden"

# Symbols, tensors, kernels and steps are numbered in order, so that one more shifts all that follow; so do times add up.
_NUMBERS = re.compile(r"%\d+|\b(?:t|input|output|constant|tape|kernel )\d+\b|^ *\d+:?(?= )|\b\d+-\d+\b|\b\d+\.\d\b")
_BLANKS = re.compile(r" +")
_CONTEXT = 2  # equal lines around a difference
_MOST_LINES = 40  # of a file's difference that are shown


def read_texts(folder: Path) -> dict[str, str]:
    """The texts of one program, by the name of the file."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*"))}


def describe_difference(name: str, stored: dict[str, str], made: dict[str, str]) -> str:
    """A unified diff of each file that differs, and how to renew them; empty where all are equal."""
    files = [file for file in sorted({*stored, *made}) if stored.get(file) != made.get(file)]
    if not files:
        return ""
    lines = [f"{name}: golden texts differ (- stored, + made now)"]
    for file in files:
        diff = unified_diff(stored.get(file, ""), made.get(file, ""))
        hidden = len(diff) - _MOST_LINES
        lines += ["", f"{name}/{file}", *diff[:_MOST_LINES], *([f"... {hidden} more lines"] if hidden > 0 else [])]
    return "\n".join([
        *lines, "",
        f"If that is meant, renew them and read what git diff says:  {RENEW} {name}",
        f"For kernels in full, run  {RENEW} --all-kernels --out FOLDER  before and after the change, and diff -r both.",
    ])  # fmt: skip


def unified_diff(stored: str, made: str) -> list[str]:
    """The lines of a unified diff. Lines that differ only by numbers in a sequence count as equal where others do not."""
    a, b = stored.splitlines(), made.splitlines()
    return _diff(a, b, [_masked(line) for line in a], [_masked(line) for line in b]) or _diff(a, b, a, b)


def _masked(line: str) -> str:
    return _BLANKS.sub(" ", _NUMBERS.sub("#", line))


def _diff(a: Sequence[str], b: Sequence[str], a_keys: Sequence[str], b_keys: Sequence[str]) -> list[str]:
    matcher = SequenceMatcher(None, a_keys, b_keys, autojunk=False)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        lines.append(f"@@ line {group[0][1] + 1}, now line {group[0][3] + 1} @@")
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                lines += [f" {line}" for line in b[j:j_end]]
            else:
                lines += [*(f"-{line}" for line in a[i:i_end]), *(f"+{line}" for line in b[j:j_end])]
    return lines
