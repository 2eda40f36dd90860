"""SciPy's functions on nnc arrays, under the names of jax.scipy: they trace, differentiate, batch and compile."""

from nnc.scipy import linalg, sparse, special, stats

__all__ = ["linalg", "sparse", "special", "stats"]


def __dir__() -> list[str]:
    return sorted(__all__)
