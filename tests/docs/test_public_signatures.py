"""Names of parameters and defaults change on purpose alone."""

from __future__ import annotations

import difflib

from tests.docs.public_signatures import TEXT, all_lines


def test_public_signatures_are_those_on_record() -> None:
    recorded, now = TEXT.read_text().splitlines(), all_lines()
    difference = "\n".join(difflib.unified_diff(recorded, now, "recorded", "now", lineterm="", n=0))
    assert not difference, f"{difference}\nIf this was meant, run: python -m tests.docs.public_signatures"
