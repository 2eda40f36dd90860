"""Models in files: pytrees of arrays as safetensors."""

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import public_names
from nnc.io.files import load, save

__all__ = ["load", "save"]


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.io")
