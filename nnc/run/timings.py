"""How long each part of a compilation took."""

from __future__ import annotations

from dataclasses import dataclass

from nnc.lower.text import format_table


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of tracing, of each pass, of binding and planning memory, of scheduling, of choosing, printing and compiling kernels,
    in that order; and of looking for the program in a file (where it is found, most others are not there) and of keeping it.
    """

    rows: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(seconds for _, seconds in self.rows)

    def __getitem__(self, part: str) -> float:
        """Seconds of one part."""
        return dict(self.rows)[part]

    def __str__(self) -> str:
        table = [("part", "ms", "%")]
        for part, seconds in (*self.rows, ("all", self.total)):
            table.append((part, f"{seconds * 1e3:.2f}", f"{100 * seconds / (self.total or 1):.1f}"))
        return "\n".join(format_table(table))
