"""What a compilation may do, in one frozen value: the cache key of every compiled function beside its specs.

Only this module reads the environment, once, when `Options.from_environment` is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nnc.errors import ArgumentError, ArgumentTypeError, user_error

_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
ALLOCATORS = ("portfolio", "article", "article-size")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """What lowering may do.

    `verify_passes` checks the graph after every pass and the memory plan once more (environment: NNC_VERIFY);
    `memory_budget` is the largest number of bytes that a call may allocate (NNC_MEMORY_BUDGET); `streams` is how many
    streams the schedule may use, "auto" or a number; `donated` names the inputs that the program may overwrite; `check_finite`
    looks at every result for NaN and infinities (`nnc.debug.check_finite`); `allocator` is how memory is planned (NNC_ALLOCATOR):
    "portfolio" is best, "article" and "article-size" are the published algorithm of libnnc and its variant that takes large tensors
    first, for comparisons.

    Example:
        >>> Options(memory_budget=parse_bytes("2GiB")).memory_budget
        2147483648
    """

    verify_passes: bool = False
    memory_budget: int | None = None
    streams: int | str = "auto"
    donated: tuple[int, ...] = ()
    check_finite: bool = False
    allocator: str = "portfolio"

    def __post_init__(self) -> None:
        check_allocator(self.allocator, "allocator")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Options:
        """The options that the environment asks for, the defaults elsewhere.

        Args:     environment: the variables, by default those of the process.
        Raises:   ArgumentError: a variable has a value that cannot be read.
        Example:  >>> Options.from_environment({"NNC_VERIFY": "1"}).verify_passes
                  True
        """
        variables = os.environ if environment is None else environment
        budget = variables.get("NNC_MEMORY_BUDGET")
        return cls(
            verify_passes=_flag("NNC_VERIFY", variables.get("NNC_VERIFY", "")),
            memory_budget=parse_bytes(budget, "NNC_MEMORY_BUDGET") if budget else None,
            allocator=check_allocator(variables.get("NNC_ALLOCATOR") or "portfolio", "NNC_ALLOCATOR"),
        )

    def update(self, **changes: Any) -> Options:
        """These options with some fields replaced."""
        return replace(self, **changes)


def parse_bytes(value: int | str, where: str = "memory_budget") -> int:
    """A number of bytes: an int, or a text such as "2GiB", "500 MB" or "1.5k" (kB are 1000 bytes, KiB are 1024).

    Raises:   ArgumentError: the text is no number of bytes, or it is negative. ArgumentTypeError: no int or string.
    Example:  >>> parse_bytes("1.5 KiB"), parse_bytes(10), parse_bytes("2MB")
              (1536, 10, 2000000)
    """
    fix = 'give a number of bytes such as 2_000_000_000, or a text such as "2GiB" or "500MB".'
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        problem = f"{value!r} is a {type(value).__name__}, not a number of bytes."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    if isinstance(value, int):
        if value < 0:
            raise user_error(ArgumentError, where, f"{value} bytes is negative.", fix=fix)
        return value
    match = re.fullmatch(r"\s*(\d+(?:_\d+)*(?:\.\d*)?)\s*([a-zA-Z]*)\s*", value)
    if match is None or match[2].lower() not in _UNITS:
        raise user_error(ArgumentError, where, f"{value!r} is no number of bytes.", fix=fix)
    number, unit = str(match[1]), _UNITS[match[2].lower()]
    return round(float(number) * unit) if "." in number else int(number) * unit


def check_allocator(name: str, where: str) -> str:
    """The name of a memory planner, as it is.

    Raises:   ArgumentError: there is no such planner.
    Example:  >>> check_allocator("article", "allocator")
              'article'
    """
    if name not in ALLOCATORS:
        known = ", ".join(map(repr, ALLOCATORS))
        raise user_error(ArgumentError, where, f"{name!r} is no memory planner.", fix=f"choose one of {known}.")
    return name


def _flag(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise user_error(ArgumentError, name, f"{text!r} is neither yes nor no.", fix=f"set {name}=1 or {name}=0.")
