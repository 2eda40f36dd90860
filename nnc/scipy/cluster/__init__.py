"""SciPy's package for clusters: here only `vq`, which assigns codes."""

from nnc.scipy.cluster import vq

__all__ = ["vq"]


def __dir__() -> list[str]:
    return sorted(__all__)
