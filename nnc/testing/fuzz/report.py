"""A report of a run: its findings, as tests that can be pasted, and its coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnc.base import dtypes
from nnc.testing.fuzz.check import Finding
from nnc.testing.fuzz.modes import Mode
from nnc.testing.fuzz.subject import Subject
from nnc.testing.fuzz.values import literal

_IMPORTS = {  # by the text that needs them
    "os.": "import os",
    "threading.": "import threading",
    "TemporaryDirectory(": "from tempfile import TemporaryDirectory",
    "patch.": "from unittest.mock import patch",
    "np.": "import numpy as np",
    "nnc.": "import nnc",
    "nn.": "import nnc.nn as nn",
    "nnp.": "import nnc.numpy as nnp",
    "random.": "from nnc import random",
    "with_mode(": "from nnc.base.context import with_mode",
    "command(": "from nnc.graph import command",
}
_MOST = 400  # elements that are printed; of larger results the program itself is asked, command by command


@dataclass
class Report:
    """Counts of a run, and its findings as tests.

    Args:
        seed: the seed of the first program.
        programs: how many ran.
        checks: by mode, how often programs were compared.
        commands: how often each ran.
        calls: how often each public function was called.
        unsupported: why programs were left out, and how often.
        findings: tests that fail.

    Example:
        >>> report = Report(seed=1, programs=2)
        >>> report.add(Report(seed=3, programs=4))
        >>> report.programs
        6
    """

    seed: int
    programs: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Adds the counts and the findings of another report.

        Args:
            other: counted with other programs.
        """
        self.programs += other.programs
        for name in ("checks", "commands", "calls", "unsupported"):
            getattr(self, name).update(getattr(other, name))
        self.findings += other.findings

    def summary(self, known: Sequence[str]) -> str:
        """The counts; `known` are the commands that there are.

        Args:
            known: names of the commands that there are.
        """
        missing = sorted(set(known) - set(self.commands))
        modes = ", ".join(f"{name} {count}" for name, count in sorted(self.checks.items()))
        return "\n".join(
            [
                f"seed {self.seed}: {self.programs} programs, {sum(self.checks.values())} runs held against references, "
                f"{len(self.findings)} findings",
                f"  modes: {modes}",
                f"  commands: {len(set(known) & set(self.commands))} of {len(known)}; functions called: {len(self.calls)}",
                f"  commands that no program had: {', '.join(missing) or 'none'}",
                *(f"  not supported, {count} times: {text}" for text, count in self.unsupported.most_common()),
            ]
        )


def as_test(subject: Subject, mode: Mode, finding: Finding, origin: str) -> str:
    """A test that shows the finding, in public API alone; `origin` names the program that it comes from."""
    body = subject.source(mode.source(subject)) + "\n\n" + _assertion(finding)
    imports = [line for text, line in _IMPORTS.items() if text in body]
    lines = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    first, *rest = finding.text.splitlines()
    return "\n".join(
        [
            f"# {origin}, mode {mode.name!r}, {finding.kind}: {first}",
            *(line for line in rest if line.startswith("#")),  # stacks of a process that did not answer
            *imports, "", "", f"def test_{mode.name.replace(' ', '_')}_gives_what_references_give():", lines,
        ]
    )  # fmt: skip


def _assertion(finding: Finding) -> str:
    if finding.kind == "silence":
        return "try:\n    run()\nexcept (nnc.errors.DTypeError, OverflowError):\n    return\nraise AssertionError('no error')"
    if finding.expected is None or finding.found is None:
        return "run()"
    at, x, y, bound = finding.leaf, finding.found, finding.expected, finding.bound
    lines = [f"found = np.asarray(nnc.tree.leaves(run())[{at}])"]
    if x.shape != y.shape or x.dtype != y.dtype:
        return "\n".join([*lines, f"assert (found.shape, found.dtype.name) == ({y.shape}, {y.dtype.name!r})"])
    if y.size > _MOST:
        eager = ["with nnc.debug.eager():", f"    expected = nnc.tree.leaves(run())[{at}]"]
        return "\n".join([*eager, *lines, "np.testing.assert_allclose(found, expected)"])
    lines.append(f"expected = {literal('expected', y).elements_source()}")
    if dtypes.is_inexact(y.dtype):
        wide = "complex128" if dtypes.is_complex(y.dtype) else "float64"
        values = f"found.astype({wide!r}), expected.astype({wide!r})"
        return "\n".join([*lines, f"np.testing.assert_allclose({values}, rtol=0, atol={bound:.3g})"])
    return "\n".join([*lines, "np.testing.assert_array_equal(found, expected)"])
