"""SciPy's functions on nnc arrays, under the names of jax.scipy: they trace, differentiate, batch and compile."""

from nnc.scipy import special

__all__ = ["special"]


def __dir__() -> list[str]:
    return sorted(__all__)
