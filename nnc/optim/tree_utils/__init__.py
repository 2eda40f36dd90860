"""Arithmetic on whole trees, and parts of the states of optimizers by name, under the names of optax.tree_utils."""

# ruff: noqa: F403  (each file lists its names)

from nnc.errors.names.lookup import listed_names
from nnc.optim.tree_utils.arithmetic import *
from nnc.optim.tree_utils.moments import *
from nnc.optim.tree_utils.parts import *

__all__ = listed_names(__name__)
