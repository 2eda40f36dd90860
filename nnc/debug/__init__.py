"""Looking into functions while they are traced, compiled or run."""

from nnc.debug.bars import Progress, progress
from nnc.debug.effects import callback, print
from nnc.debug.explain import explain
from nnc.debug.memory import TapeMemory, tape_memory
from nnc.debug.modes import check_finite, check_keys, eager, trace_errors
from nnc.debug.profile import profile

__all__ = [
    "Progress",
    "TapeMemory",
    "callback",
    "check_finite",
    "check_keys",
    "eager",
    "explain",
    "print",
    "profile",
    "progress",
    "tape_memory",
    "trace_errors",
]
