"""Programs on several places at once: meshes with named axes, `shard_map`, and data parallel training in one line."""

from typing import TYPE_CHECKING

from nnc.distributed.mesh import Mesh, make_mesh
from nnc.distributed.parallel import data_parallel
from nnc.distributed.partition import gather, partition_specs
from nnc.distributed.processes import rank, size
from nnc.distributed.shard import shard_map
from nnc.distributed.specs import PartitionSpec
from nnc.errors.names.lookup import public_names

__all__ = [
    "Mesh", "PartitionSpec", "data_parallel", "gather", "make_mesh", "partition_specs", "rank", "shard_map", "size",
]  # fmt: skip


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.distributed")
