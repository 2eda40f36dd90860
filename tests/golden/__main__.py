"""Renews the golden texts: python -m tests.golden [PROGRAM ...].

With --all-kernels --out FOLDER the full text of every kernel is written, too, and elsewhere. Folders that two commits made can be
compared with diff -r.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tests.golden.machine import pin_machine

STORED = Path(__file__).parent / "texts"


def main() -> None:
    """Reads the command line and writes the texts."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Renew the golden texts.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    parser.add_argument("--out", type=Path, default=STORED, help="where they go (default: %(default)s)")
    parser.add_argument("--all-kernels", action="store_true", help="write the full text of every kernel, too")
    given = parser.parse_args()
    pin_machine()

    from tests.golden.programs import PROGRAMS  # noqa: PLC0415  (on the pinned machine)
    from tests.golden.texts import make_texts  # noqa: PLC0415

    known = {make.__name__: make for make in PROGRAMS}
    for name in given.programs or known:
        folder = given.out / name
        texts = make_texts(known[name](), all_kernels=given.all_kernels)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
