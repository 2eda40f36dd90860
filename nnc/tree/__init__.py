"""Pytrees: nested containers of arrays. Dicts, lists, tuples, namedtuples, dataclasses, None and registered classes.

Built on optree, in its namespace "nnc". A dataclass becomes a pytree when it is first met: its fields are children, except
fields marked `metadata={"static": True}` and fields that hold a setting (a string, a function, a bool, an int, …), which become
part of the structure.
"""

from typing import TYPE_CHECKING

from nnc.tree.flattening import (
    TreeDef as TreeDef,
)
from nnc.tree.flattening import (
    all_leaves,
    flatten,
    flatten_with_path,
    leaves,
    leaves_with_path,
    paths,
    structure,
    unflatten,
)
from nnc.tree.flattening import containers as containers
from nnc.tree.flattening import unflatten_like as unflatten_like
from nnc.tree.mapping import broadcast_prefix, map, map_with_path, reduce, transpose
from nnc.tree.mapping import settings as settings
from nnc.tree.mismatches import changes_of_containers as changes_of_containers
from nnc.tree.mismatches import check_hashable as check_hashable
from nnc.tree.mismatches import check_same_structure as check_same_structure
from nnc.tree.mismatches import tree_mismatch as tree_mismatch
from nnc.tree.registration import CHILDREN as CHILDREN
from nnc.tree.registration import NAMESPACE as NAMESPACE
from nnc.tree.registration import Settings as Settings
from nnc.tree.registration import change_numbers as change_numbers
from nnc.tree.registration import is_array, register, register_dataclass
from nnc.tree.registration import is_array_type as is_array_type
from nnc.tree.registration import same_settings as same_settings

if TYPE_CHECKING:
    from nnc.tree.edits import at
    from nnc.tree.ravelling import ravel

__all__ = [
    "all_leaves",
    "at",
    "broadcast_prefix",
    "flatten",
    "flatten_with_path",
    "is_array",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "paths",
    "ravel",
    "reduce",
    "register",
    "register_dataclass",
    "structure",
    "transpose",
    "unflatten",
]
