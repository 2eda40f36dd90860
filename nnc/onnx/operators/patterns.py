"""Regular expressions that match in linear time: K. Thompson, Regular expression search algorithm (1968).

Python's `re` tries one way after the other, and some patterns of 20 characters take it years on 50 characters of text. Here all
ways are followed at once, as in RE2, whose syntax the standard asks for. Python's parser reads the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

MOST_STATES = 10_000  # of a pattern; RE2 repeats 1,000 times at most
DEEPEST = 100  # groups within each other

Test = Callable[[str], bool]


class State(NamedTuple):
    """A place in a pattern: it takes a character for which `test` holds, or needs `at` to hold between two, and goes on."""

    test: Test | None
    at: Any
    following: list[int]


class Pattern:
    """A compiled pattern.

    Raises:
        ValueError: the pattern cannot be read, or has parts that RE2 lacks, such as references to groups.
    """

    def __init__(self, text: str) -> None:
        try:
            parsed = parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"the pattern {text!r:.80} cannot be read: {error}") from None
        self._text, self._flags = text, parsed.state.flags
        self._states: list[State] = []
        self._end = self._add(None, None)
        self._start = self._sequence(parsed, self._end, 0)

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        present = self._closure({self._start}, text, 0)
        for index, character in enumerate(text):
            taken = set()
            for number in present:
                state = self._states[number]
                if state.test is not None and state.test(character):
                    taken.update(state.following)
            present = self._closure(taken, text, index + 1)
            if not present:
                return False
        return self._end in present

    def _closure(self, numbers: set[int], text: str, index: int) -> set[int]:
        """Returns the states that are reached without a character."""
        found, pending = set(numbers), list(numbers)
        while pending:
            state = self._states[pending.pop()]
            if state.test is None and (state.at is None or _holds(state.at, text, index)):
                new = set(state.following) - found
                found |= new
                pending += new
        return found

    def _add(self, test: Test | None, at: Any, *following: int) -> int:
        if len(self._states) >= MOST_STATES:
            raise ValueError(f"the pattern {self._text!r:.80} has more than {MOST_STATES} states")
        self._states.append(State(test, at, list(following)))
        return len(self._states) - 1

    def _sequence(self, items: Any, then: int, depth: int) -> int:
        """Adds the states of a sequence that goes on at `then`; returns its first."""
        if depth > DEEPEST:
            raise ValueError(f"groups of the pattern {self._text!r:.80} lie more than {DEEPEST} deep within each other")
        for kind, value in reversed(list(items)):
            then = self._item(kind, value, then, depth + 1)
        return then

    def _item(self, kind: Any, value: Any, then: int, depth: int) -> int:
        if kind in (kinds.LITERAL, kinds.NOT_LITERAL, kinds.ANY, kinds.IN):
            return self._add(self._test(kind, value), None, then)
        if kind is kinds.SUBPATTERN:
            _, added, removed, inner = value
            before, self._flags = self._flags, (self._flags | added) & ~removed
            found = self._sequence(inner, then, depth)
            self._flags = before
            return found
        if kind is kinds.BRANCH:
            return self._add(None, None, *(self._sequence(way, then, depth) for way in value[1]))
        if kind is kinds.AT:
            at = {kinds.AT_BEGINNING: kinds.AT_BEGINNING_LINE, kinds.AT_END: kinds.AT_END_LINE}
            return self._add(None, at.get(value, value) if self._flags & re.MULTILINE else value, then)
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(least, most, inner, then, depth)
        raise ValueError(f"the pattern {self._text!r:.80} has {str(kind).lower()}, which RE2 lacks")

    def _repeat(self, least: int, most: Any, inner: Any, then: int, depth: int) -> int:
        if most is kinds.MAXREPEAT:
            again = self._add(None, None, then)
            self._states[again].following.append(self._sequence(inner, again, depth))
            start = again
        else:
            start = then
            for _ in range(int(most) - least):
                start = self._add(None, None, then, self._sequence(inner, start, depth))
        for _ in range(least):
            start = self._sequence(inner, start, depth)
        return start

    def _test(self, kind: Any, value: Any) -> Test:
        """Returns the test of a character. Python's `re` decides, one character at a time, so the time has a bound."""
        flags = self._flags & (re.IGNORECASE | re.DOTALL | re.ASCII)
        if kind is kinds.ANY:
            return (lambda character: True) if flags & re.DOTALL else (lambda character: character != "\n")
        if kind is not kinds.IN and not flags & re.IGNORECASE:
            literal = chr(value)
            if kind is kinds.LITERAL:
                return lambda character: character == literal
            return lambda character: character != literal
        parts = value if kind is kinds.IN else [(kind, value)]
        one = re.compile(_class_of(parts), flags)
        return lambda character: one.fullmatch(character) is not None


_CATEGORIES = {
    kinds.CATEGORY_DIGIT: r"\d", kinds.CATEGORY_NOT_DIGIT: r"\D", kinds.CATEGORY_SPACE: r"\s",
    kinds.CATEGORY_NOT_SPACE: r"\S", kinds.CATEGORY_WORD: r"\w", kinds.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _class_of(parts: Any) -> str:
    """Returns the pattern of one character of a class."""
    is_negated, found = False, []
    for kind, value in parts:
        if kind is kinds.NEGATE or kind is kinds.NOT_LITERAL:
            is_negated = True
        if kind in (kinds.LITERAL, kinds.NOT_LITERAL):
            found.append(re.escape(chr(value)))
        elif kind is kinds.RANGE:
            found.append(f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}")
        elif kind is kinds.CATEGORY:
            found.append(_CATEGORIES[value])
    return f"[{'^' if is_negated else ''}{''.join(found)}]"


def _holds(at: Any, text: str, index: int) -> bool:
    """Whether a condition such as the end of the text holds before the character at an index."""
    if at in (kinds.AT_BEGINNING, kinds.AT_BEGINNING_STRING):
        return index == 0
    if at is kinds.AT_BEGINNING_LINE:
        return index == 0 or text[index - 1] == "\n"
    if at in (kinds.AT_END, kinds.AT_END_STRING):  # in RE2, `$` is the end itself
        return index == len(text)
    if at is kinds.AT_END_LINE:
        return index == len(text) or text[index] == "\n"
    is_edge = _is_word(text, index - 1) != _is_word(text, index)
    return is_edge == (at is kinds.AT_BOUNDARY)


def _is_word(text: str, index: int) -> bool:
    return 0 <= index < len(text) and (text[index].isalnum() or text[index] == "_")
