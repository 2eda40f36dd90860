"""The errors of nnc: one class for each kind of mistake, and the function that words them."""

from nnc.errors.errors import *  # noqa: F403  (the file lists its names)
from nnc.errors.errors import __all__ as __all__


def __dir__() -> list[str]:
    return sorted(__all__)
