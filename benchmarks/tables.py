"""Tables that benchmarks print, as Markdown, so that RESULTS.md can hold them as they are."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

Cell = str | int | float


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints a title and a table; text stands left, numbers right."""
    texts = [
        [cell if isinstance(cell, str) else f"{cell:,.10g}" if isinstance(cell, float) else f"{cell:,}" for cell in row]
        for row in rows
    ]
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(header))]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    print(f"\n### {title}\n", flush=True)
    for cells in (
        header,
        ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)],
        *texts,
    ):
        columns = zip(cells, widths, numeric, strict=True)
        print(
            "| " + " | ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in columns) + " |",
            flush=True,
        )


def mebibytes(nbytes: float) -> float:
    """Bytes as MiB, with one digit after the point."""
    return round(nbytes / 2**20, 1)


def describe_machine(*packages: str) -> str:
    """The day, the processor, its cores and the versions of Python and of packages that are installed."""
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return f"{datetime.now(UTC):%Y-%m-%d}, {_processor()}, {os.cpu_count()} cores; {', '.join(found)}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
