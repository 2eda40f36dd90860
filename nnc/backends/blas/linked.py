"""LAPACK by its usual names, for programs that are linked outside: integers of 32 bits, as most libraries have them.

Printed kernels call routines with integers of 64 bits. An adapter of that name passes the addresses on, whose low halves the
routine reads, and widens the integers that it wrote: the status, and the pivots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nnc.errors import InternalError

BLAS = "blas"  # the backend whose kernels call LAPACK
# Of each routine: its arguments, how many lengths of letters follow, whether the last argument is a status, and for pivots their
# position and the positions of the sizes, the smallest of which is their number.
_ROUTINES: dict[str, tuple[int, int, bool, tuple[int, ...]]] = {
    "potrf": (5, 1, True, ()),
    "gesv": (8, 0, True, (4, 0)),
    "getrf": (6, 0, True, (4, 0, 1)),
    "geqrf": (8, 0, True, ()),
    "orgqr": (9, 0, True, ()),
    "syevd": (11, 2, True, ()),
    "gesdd": (14, 1, True, ()),
}
_SYMBOL = re.compile(r"scipy_([sd])(\w+?)_64_")


def adapters_text(symbols: Iterable[str]) -> str:
    """Returns the functions of these names, which call LAPACK's, as LLVM's text."""
    return "\n".join(map(_adapter, symbols))


def is_linkable(symbol: str) -> bool:
    """Whether there is an adapter of this name."""
    found = _SYMBOL.fullmatch(symbol)
    return found is not None and found[2] in _ROUTINES


def _adapter(symbol: str) -> str:
    found = _SYMBOL.fullmatch(symbol)
    if found is None or found[2] not in _ROUTINES:
        raise InternalError(f"no adapter for {symbol}")
    count, letters, has_status, pivots = _ROUTINES[found[2]]
    name = f"{found[1]}{found[2]}_"
    kinds = ", ".join(["ptr"] * count + ["i64"] * letters)
    named = ", ".join([f"ptr %x{i}" for i in range(count)] + [f"i64 %n{i}" for i in range(letters)])
    lines = [f"declare void @{name}({kinds})", f"define void @{symbol}({named}) nounwind {{", "entry:"]
    lines += [f"  call void @{name}({named})"]
    if has_status:
        status = f"%x{count - 1}"
        lines += [f"  %status = load i32, ptr {status}", "  %wide = sext i32 %status to i64"]
        lines += [f"  store i64 %wide, ptr {status}"]
    if pivots:
        at, *sizes = pivots
        lines += [f"  %size{i} = load i64, ptr %x{i}" for i in sizes]
        number = f"%size{sizes[0]}"
        for i in sizes[1:]:
            lines += [f"  %less{i} = icmp slt i64 %size{i}, {number}"]
            lines += [f"  %least{i} = select i1 %less{i}, i64 %size{i}, i64 {number}"]
            number = f"%least{i}"
        lines += [  # from the last to the first, since a wide number lies over two narrow ones
            "  br label %look", "look:", f"  %left = phi i64 [{number}, %entry], [%i, %widen]",
            "  %some = icmp sgt i64 %left, 0", "  br i1 %some, label %widen, label %done", "widen:",
            "  %i = sub i64 %left, 1", f"  %from = getelementptr i32, ptr %x{at}, i64 %i", "  %narrow = load i32, ptr %from",
            "  %pivot = sext i32 %narrow to i64", f"  %to = getelementptr i64, ptr %x{at}, i64 %i",
            "  store i64 %pivot, ptr %to", "  br label %look", "done:",
        ]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}", ""])
