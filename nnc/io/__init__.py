"""Models in files: pytrees of arrays as safetensors."""

from typing import TYPE_CHECKING

from nnc.errors.names import module_getattr
from nnc.io.files import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__ = module_getattr("nnc.io")
