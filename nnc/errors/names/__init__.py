"""Names of other libraries and nnc's: tables, which are read for the first error, and errors that are made of them."""

from nnc.errors.names.lookup import (
    MissingAttribute,
    MissingMethod,
    add_missing,
    find_row,
    missing_name,
    module_getattr,
    names_without_missing,
)
from nnc.errors.names.tables import SOURCES, TABLES, Row, Rows, code_of, note_of

__all__ = [
    "SOURCES",
    "TABLES",
    "MissingAttribute",
    "MissingMethod",
    "Row",
    "Rows",
    "add_missing",
    "code_of",
    "find_row",
    "missing_name",
    "module_getattr",
    "names_without_missing",
    "note_of",
]
