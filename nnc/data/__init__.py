"""Reading data: arrays as batches, shuffled by a key, made ahead by a thread."""

from nnc.data.batching import Batches, batches

__all__ = ["Batches", "batches"]
