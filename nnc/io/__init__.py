"""Models in files: pytrees of arrays as safetensors."""

from nnc.io.files import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
