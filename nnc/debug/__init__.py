"""Looking into functions while they are traced, compiled or run."""

from typing import TYPE_CHECKING

from nnc.array.promotion_watch import PromotionWarning
from nnc.debug.bars import Progress, progress
from nnc.debug.effects import callback, print
from nnc.debug.explain import explain
from nnc.debug.memory import TapeMemory, tape_memory
from nnc.debug.modes import check_finite, check_keys, eager, promotion, trace_errors
from nnc.debug.profile import profile
from nnc.debug.transfers import TransferWarning, transfers
from nnc.errors.names.lookup import public_names

__all__ = [
    "Progress",
    "PromotionWarning",
    "TapeMemory",
    "TransferWarning",
    "callback",
    "check_finite",
    "check_keys",
    "eager",
    "explain",
    "print",
    "profile",
    "progress",
    "promotion",
    "tape_memory",
    "trace_errors",
    "transfers",
]


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.debug")
