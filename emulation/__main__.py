"""Runs nnc as Linux on aarch64 does, under QEMU's user mode, on a machine with another processor.

    python -m emulation                         tests about processors, a part of the long tables; an example
    python -m emulation quick                   some of these tests: two minutes on an idle machine
    python -m emulation pytest [ARGUMENTS]      tests of one's choice
    python -m emulation python [ARGUMENTS]      Python: a program, or -m nnc doctor, or -m nnc.testing.fuzz

The first run fetches Debian's packages and wheels into out/aarch64: a minute, 0.6 GB. It needs `qemu-user-static`, apt, and a
package index that has wheels for aarch64. QEMU takes 10 to 20 times as long as a processor. Exit code 3: this cannot be had.
"""

from __future__ import annotations

import subprocess
import sys

from emulation.root import ROOT, MissingError, environment, make_root

CHOSEN = (
    "tests/contract/commands/test_contract.py",
    "tests/unit/backends/cpu",
    "tests/unit/lower/kernels/test_conformance.py",
    "tests/unit/trace/loops",
)
QUICK = (
    "tests/unit/backends/cpu/compiler/test_elf.py",
    "tests/unit/backends/cpu/kernels/products",
    "tests/unit/backends/cpu/kernels/sorts",
    "tests/unit/backends/cpu/threads/test_pool.py",
)
_ABSENT = 3


def main(arguments: list[str]) -> int:
    """Returns the exit code of the program that ran."""
    try:
        python = str(make_root())
    except MissingError as error:
        print(f"emulation: {error}", file=sys.stderr)
        return _ABSENT
    kind, *rest = arguments or ["all"]
    if kind == "python":
        return _run([python, *rest])
    if kind == "pytest":
        return _run([python, "-m", "pytest", "-p", "no:cacheprovider", *rest])
    if kind not in ("all", "quick"):
        print(__doc__, file=sys.stderr)
        return 2
    tests = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", *(CHOSEN if kind == "all" else QUICK), *rest]
    status = _run(tests, NNC_TESTS="part", HYPOTHESIS_PROFILE="ci")
    return status or (_run([python, "examples/digits.py", "--epochs=1"]) if kind == "all" else 0)


def _run(command: list[str], **more: str) -> int:
    return subprocess.run(command, cwd=ROOT, env={**environment(), **more}, check=False).returncode


sys.exit(main(sys.argv[1:]))
