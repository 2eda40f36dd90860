"""Meshes and the processes that they are made of."""

from __future__ import annotations

import pickle

import pytest

import nnc
from nnc.distributed import Mesh, PartitionSpec, make_mesh
from nnc.errors import ArgumentTypeError


def test_a_mesh_knows_its_places() -> None:
    mesh = make_mesh((4, 2), ("data", "model"), simulated=True)
    assert mesh.shape == {"data": 4, "model": 2} and mesh.size == 8 and mesh.simulated
    assert mesh == Mesh((4, 2), ("data", "model"), simulated=True) and hash(mesh) == hash(
        pickle.loads(pickle.dumps(mesh))
    )
    assert make_mesh((1,), ("data",)).size == 1


def test_a_program_that_was_started_by_itself_is_one_process() -> None:
    assert (nnc.distributed.rank(), nnc.distributed.size()) == (0, 1)


def test_partition_specs_are_values() -> None:
    spec = PartitionSpec("data", None, ("a", "b"))
    assert spec == PartitionSpec(("data",), (), ("a", "b")) and hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert list(spec) == ["data", None, ("a", "b")] and len(spec) == 3
    assert repr(spec) == "PartitionSpec('data', None, ('a', 'b'))"
    assert nnc.tree.leaves({"w": spec}) == [spec]
    with pytest.raises(ArgumentTypeError, match="3 is no name of an axis"):
        PartitionSpec(3)  # type: ignore[arg-type]
