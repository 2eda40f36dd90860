"""Names of other libraries and nnc's: tables, which are imported for the first error, and errors that are made of them."""

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import (
    MissingAttribute,
    MissingMethod,
    add_missing,
    find_row,
    missing_name,
    module_getattr,
    names_without_missing,
)
from nnc.errors.names.rows import Row, Rows, code_of, note_of

if TYPE_CHECKING:
    from nnc.errors.names.tables import SOURCES, TABLES

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

if not TYPE_CHECKING:
    __getattr__ = module_getattr(__name__, dict.fromkeys(("SOURCES", "TABLES"), f"{__name__}.tables"))
