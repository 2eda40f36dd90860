"""Vector quantisation, under jax.scipy.cluster.vq's names."""

from nnc.scipy.cluster.vq.codes import vq

__all__ = ["vq"]


def __dir__() -> list[str]:
    return sorted(__all__)
