"""How weights of a model are split over a mesh: read off the layers (nnc.nn.parallel), for arguments and results of places."""

from __future__ import annotations

from nnc import tree
from nnc.calls.spelling import spelled
from nnc.distributed.mesh import Mesh, check_mesh
from nnc.distributed.shard import run_places
from nnc.distributed.specs import PartitionSpec
from nnc.trace.core.parts import Split, is_part, weight_splits
from nnc.typing import A

_WHERE = "nnc.distributed.gather"


def partition_specs(value: A) -> A:
    """Returns how the weights of a pytree of modules are split over the axes of a mesh.

    Gradients, and states of optimizers that hold a module for each of their moments, are split as their model is.

    Args:
        value: a pytree; modules with a property `split_weights`, as nnc.nn.ColumnParallelLinear has, say how they are split.

    Returns:
        the pytree with a PartitionSpec in the place of each leaf, for `shard_map`.

    Example:
        >>> layer = nnc.nn.tensor_parallel(nnc.nn.Embedding(10, 4, key=nnc.random.key(0)), "model")
        >>> nnc.distributed.partition_specs({"table": layer, "scale": 1.0})
        {'table': VocabParallelEmbedding(weight=PartitionSpec('model', None), ...), 'scale': PartitionSpec()}
    """
    splits = weight_splits(value)
    structure = tree.structure(value)
    specs: A = tree.unflatten(structure, [spec_of_split(split) for split in splits])
    return specs


@spelled
def gather(value: A, *, mesh: Mesh) -> A:
    """Gathers the whole weights of a model whose weights are split over processes, as `data_parallel` returns it.

    All processes of the mesh call it together.

    Args:
        value: a pytree of modules; weights that are whole already stay as they are.
        mesh: the mesh of the processes.

    Returns:
        the pytree, whole in each process.

    Example:
        >>> mesh = nnc.distributed.make_mesh((1,), ("model",))
        >>> layer = nnc.nn.tensor_parallel(nnc.nn.Embedding(10, 4, key=nnc.random.key(0)), "model")
        >>> nnc.distributed.gather(layer, mesh=mesh).weight.shape
        (10, 4)
    """
    check_mesh(_WHERE, mesh)
    leaves, splits = tree.leaves(value), weight_splits(value, mesh.axis_names)
    parts = [i for i, (x, split) in enumerate(zip(leaves, splits, strict=True)) if split and is_part(x, split)]
    specs = [spec_of_split(splits[i]) for i in parts]
    paths = [tree.leaves_with_path(value)[i][0] for i in parts]
    found = run_places(
        lambda *values: list(values), mesh, [leaves[i] for i in parts], paths, specs, specs, _WHERE,
        parts_in=range(len(parts)),
    )  # fmt: skip
    for i, x in zip(parts, found, strict=True):
        leaves[i] = x
    whole: A = tree.unflatten(tree.structure(value), leaves)
    return whole


def spec_of_split(split: Split) -> PartitionSpec:
    """Returns the spec of a leaf."""
    return PartitionSpec(*(None if axis is None else axis[0] for axis in split))
