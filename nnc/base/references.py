"""The count of references to an object to which one variable alone refers.

NumPy keeps no list of an array's views, so that only this count shows that a result has no other reader. Without it each donated
array is copied (64 MB: 8 ms a call rather than 2.3, and 60 MB more at the peak), and so is each operand of an eager `vjp`.
"""

from __future__ import annotations

import sys


def _count() -> int:
    alone = object()
    return sys.getrefcount(alone)


IN_VARIABLE = _count()  # measured: 2, but 1 from CPython 3.14 on, where a call borrows references of variables
