"""The form of the tables: names of another library's module, and nnc's code for each."""

from __future__ import annotations

from collections.abc import Mapping

Row = str | tuple[str, str]
"""Code of nnc, where x and y are arrays and f a function, or such code and a note.

Example:
    >>> row: Row = ("nnp.sum(x)", "as in NumPy")
    >>> note_of(row)
    'as in NumPy'
"""
Rows = Mapping[str, Row]
"""A table: rows by the names of another library.

Example:
    >>> rows: Rows = {"cat": "nnp.concatenate([x, y])"}
    >>> code_of(rows["cat"])
    'nnp.concatenate([x, y])'
"""


def code_of(row: Row) -> str:
    """Returns the code of nnc that stands for a name.

    Args:
        row: a row of a table.

    Example:
        >>> code_of(("nnp.sum(x)", "as in NumPy")), code_of("nnp.exp(x)")
        ('nnp.sum(x)', 'nnp.exp(x)')
    """
    return row if isinstance(row, str) else row[0]


def note_of(row: Row) -> str:
    """Returns the note beside the code; an empty string where there is none.

    Args:
        row: a row of a table.

    Example:
        >>> note_of(("nnp.sum(x)", "as in NumPy")), note_of("nnp.exp(x)")
        ('as in NumPy', '')
    """
    return "" if isinstance(row, str) else row[1]
