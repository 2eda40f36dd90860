"""`python -m nnc doctor`: prints which libraries and processor features nnc uses here."""

from __future__ import annotations

import sys

from nnc.debug import doctor

USAGE = "usage: python -m nnc doctor    print versions, processor, libraries, devices and caches"


def main(arguments: list[str]) -> int:
    """Runs the subcommand; returns the exit status: 0, or 2 with the usage where there is no such subcommand."""
    if arguments == ["doctor"]:
        print(doctor.to_text(doctor.collect()))
        return 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
