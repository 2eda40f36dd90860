"""Reading data: arrays as batches, shuffled by a key, and batches of other libraries; prefetched by a thread."""

from typing import TYPE_CHECKING

from nnc.data.ahead import Prefetch
from nnc.data.batching import Batches, batches
from nnc.data.iterables import prefetch
from nnc.errors.names.lookup import public_names

__all__ = ["Batches", "Prefetch", "batches", "prefetch"]


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.data")
