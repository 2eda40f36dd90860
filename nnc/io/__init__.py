"""Models in files: pytrees of arrays as safetensors."""

from nnc.io.files import load, save
from nnc.io.layout import FileFormatError, MissingFileError

__all__ = ["FileFormatError", "MissingFileError", "load", "save"]
