"""Live ranges in files: the table `id,lower,upper,size` (half-open ranges of steps, bytes) that planners are compared on."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnc.base.records import record
from nnc.errors import ArgumentError, user_error

COLUMNS = ("id", "lower", "upper", "size")
_LARGEST = 2**56  # bytes or steps
# bytes of all tensors times their number: planners order places and tensors by one number of 64 bits
_LARGEST_PLAN = 2**60


@record
class Instance:
    """Tensors of one file: names, first steps, steps after the last, bytes."""

    ids: tuple[str, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    size: tuple[int, ...]


def read_instance(path: str | Path) -> Instance:
    """Reads a table of live ranges; columns other than `id,lower,upper,size` are ignored.

    Raises:
        ArgumentError: the file cannot be read as such a table; names the line and the column.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _mistake(str(path), f"the file cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _mistake(str(path), "the file is no text in UTF-8.") from None
    table = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return _instance(str(path), table)
    except csv.Error as error:
        raise _mistake(f"{path}:{table.line_num}", f"the line is no row of a table: {error}.") from None


def _instance(path: str, table: Any) -> Instance:
    header = [name.strip() for name in next(table, [])]
    for name in COLUMNS:
        if header.count(name) != 1:
            found = "twice" if name in header else "missing"
            raise _mistake(f"{path}:1", f"column {name!r} is {found} in the header {','.join(header)!r}.")
    rows: dict[str, tuple[int, int, int]] = {}
    for cells in table:
        if not cells:
            continue
        where = f"{path}:{table.line_num}"
        if len(cells) != len(header):
            raise _mistake(where, f"the line has {len(cells)} cells, the header {len(header)}.")
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        if row["id"] in rows:
            raise _mistake(where, f"column 'id': {row['id']!r} stands in an earlier line, too.")
        rows[row["id"]] = _range(row, where)
    lower, upper, size = zip(*rows.values(), strict=True) if rows else ((), (), ())
    if sum(size) * len(size) > _LARGEST_PLAN:
        most = f"more than 2**60 / {len(size)}, which is the most for so many."
        raise _mistake(path, f"column 'size': {len(size)} tensors have {sum(size)} bytes together, {most}")
    return Instance(tuple(rows), lower, upper, size)


def write_offsets(path: Path, ids: Sequence[str], offsets: Sequence[int]) -> None:
    """Writes the table `id,offset`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("id", "offset"))
        table.writerows(zip(ids, offsets, strict=True))


def _range(row: Mapping[str, str], where: str) -> tuple[int, int, int]:
    lower, upper, size = (_number(row[name], name, where) for name in COLUMNS[1:])
    if upper <= lower:
        raise _mistake(where, f"column 'upper': {upper} is not after lower, {lower}; the range is half open.")
    return lower, upper, size


def _number(cell: str, name: str, where: str) -> int:
    digits = cell.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise _mistake(where, f"column {name!r}: {cell!r} is no whole number.")
    number = int(cell) if len(cell) < 20 else _LARGEST + 1
    if cell.startswith("-"):
        raise _mistake(where, f"column {name!r}: {cell} is negative.")
    if number > _LARGEST:
        raise _mistake(where, f"column {name!r}: {cell} is larger than 2**56.")
    return number


def _mistake(where: str, problem: str) -> Exception:
    return user_error(
        ArgumentError, where, problem, fix="write a table with the header id,lower,upper,size, one tensor a line."
    )
