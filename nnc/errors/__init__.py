"""The errors of nnc: one class for each kind of mistake, and the function that words them."""

from nnc.base.later import later
from nnc.errors.errors import *  # noqa: F403  (the file lists its names)
from nnc.errors.errors import __all__ as __all__

access = later(f"{__name__}.paths", "access")
hash_remedy = later(f"{__name__}.remedies", "hash_remedy")
numpy_remedy = later(f"{__name__}.remedies", "numpy_remedy")
path_to_read = later(f"{__name__}.paths", "path_to_read")
path_to_write = later(f"{__name__}.paths", "path_to_write")
remedy = later(f"{__name__}.remedies", "remedy")


def __dir__() -> list[str]:
    return sorted(__all__)
