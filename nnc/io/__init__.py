"""Models in files: pytrees of arrays as safetensors."""

from nnc.io.files import load, save

__all__ = ["load", "save"]
