"""Patterns match the same texts as with Python's `re`, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.onnx.operators.patterns import Pattern

PATTERNS = [
    "", "a", "abc", "a|b", "a*", "(a|b)*c", "a+?b", "a{2,3}", "(ab){0,2}", "[a-c]+", "[^a]b", r"\d+\.\d*", r"\w+@\w+\.(com|org)",
    "(?i)Ab[C-D]", "(?:a|bc)+d?", ".*", "(?s).*b", "^a.*b$", r"\bab\b|c", r"a\s?b", "(a|ab)(c|bcd)(d*)", "a??b*?", r"[\w.]+",
    "(?m)^a$", r"\Aab\Z", "(?i:a)b", r"[^\d]", "a{3}", "(a*)*b", "x|", r"[\]\-^]",
]  # fmt: skip
TEXT = st.text("abcdAB1.-^]@\n_ x", max_size=8)


@pytest.mark.parametrize("text", PATTERNS)
@given(sample=TEXT)
def test_the_same_texts_match_as_with_re(text: str, sample: str) -> None:
    assert Pattern(text).matches(sample) == (re.fullmatch(text, sample) is not None)


PIECES = st.from_regex(r"([abc.]|\(a\|b\)|\[ab\])([*+?]|\{1,2\})?", fullmatch=True)


@given(text=PIECES, sample=TEXT, more=st.text("ab|*", max_size=3))
def test_generated_patterns_match_the_same(text: str, sample: str, more: str) -> None:
    try:
        wanted = re.fullmatch(text + more, sample)
    except re.error:
        with pytest.raises(ValueError, match="cannot be read"):
            Pattern(text + more)
        return
    assert Pattern(text + more).matches(sample) == (wanted is not None)


def test_texts_from_which_re_never_returns_take_no_time() -> None:
    start = time.process_time()
    assert not Pattern("(a*)*b").matches("a" * 2000)
    assert not Pattern("(a|a)*(a|aa)+$").matches("a" * 2000 + "!")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"(a)\1", "groupref, which RE2 lacks"), ("(?=a)a", "assert, which RE2 lacks"), ("(", "cannot be read"),
        ("(a{1000}){1000}", "more than 10000 states"), ("(" * 150 + ")" * 150, "deep within each other"),
    ],
)  # fmt: skip
def test_parts_that_re2_lacks_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pattern(text)
