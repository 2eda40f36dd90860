"""Symbolic graphs: specs, symbols, nodes, the open command registry, builder, passes, rewrite rules, text and JSON forms.

Nothing here knows a command by name, but for `slice` and `assemble`, through which the builder gives aliases a meaning.
"""

# ruff: noqa: F403  (each file lists its names)

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import listed_names, public_names
from nnc.graph.boxes import *
from nnc.graph.builder import *
from nnc.graph.dispatch import *
from nnc.graph.graph import *
from nnc.graph.hashing import *
from nnc.graph.kernels import *
from nnc.graph.passes import *
from nnc.graph.registry import *
from nnc.graph.rewrite import *
from nnc.graph.rewrite_rule import *
from nnc.graph.rules import *
from nnc.graph.serialize import *
from nnc.graph.spec import *
from nnc.graph.text import *
from nnc.graph.verify import *

if TYPE_CHECKING:
    from nnc.graph.rewrite_check import check_rule as check_rule

__all__ = listed_names(__name__, "check_rule")


if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(__name__, {"check_rule": f"{__name__}.rewrite_check"})
