"""Random numbers from explicit keys; the bits agree with jax.random for the same key.

A draw depends on its key, its parameters and its dtype alone: it has the same bits in an eager call, compiled with any options,
batched and without a compiler, since its functions round each operation as IEEE 754 says, in one order.
"""

# ruff: noqa: F403  (each file lists its names)

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import listed_names, public_names
from nnc.random.continuous import *
from nnc.random.counts import *
from nnc.random.discrete import *
from nnc.random.gamma import *
from nnc.random.keys import *
from nnc.random.reuse import *
from nnc.random.transformed import *
from nnc.random.vectors import *

__all__ = listed_names(__name__)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.random")
