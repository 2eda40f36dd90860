"""Names of other libraries and nnc's: tables, and the errors that are made of them."""

from nnc.migration.lookup import MissingMethod, find_row, missing_name, module_getattr
from nnc.migration.rows import Row, Rows, code_of, note_of
from nnc.migration.tables import SOURCES, TABLES

__all__ = [
    "SOURCES",
    "TABLES",
    "MissingMethod",
    "Row",
    "Rows",
    "code_of",
    "find_row",
    "missing_name",
    "module_getattr",
    "note_of",
]
