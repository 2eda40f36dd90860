"""Reading data: arrays as batches, shuffled by a key, prefetched by a thread."""

from nnc.data.batching import Batches, batches

__all__ = ["Batches", "batches"]


def __dir__() -> list[str]:
    return sorted(__all__)
