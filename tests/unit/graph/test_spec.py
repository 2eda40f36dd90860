"""Specs of tensors: equal ones are one object."""

import copy
import gc
import pickle
import threading
import weakref
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from nnc.graph import TensorSpec


def test_equal_specs_are_one_object_however_they_are_written() -> None:
    spec = TensorSpec((2, 3), "float32")
    assert TensorSpec([np.int64(2), 3], np.dtype("<f4")) is spec
    assert TensorSpec((3, 3), "float32").update(shape=(2, 3)) is spec


def test_the_dtype_of_a_spec_is_the_one_that_numpy_gives_its_arrays() -> None:
    stored = pickle.loads(pickle.dumps(np.dtype("float32")))  # equal, but another object
    assert TensorSpec((7, 11, 13), stored).dtype is np.empty(0, np.float32).dtype
    assert TensorSpec((7, 11, 13), np.dtype(">f4")).dtype == np.dtype(">f4")


def test_specs_that_differ_in_one_field_are_others() -> None:
    spec = TensorSpec((2, 3), "float32")
    others = [
        spec.update(shape=(3, 2)),
        spec.update(dtype="float64"),
        spec.update(layout="blocked"),
    ]
    assert all(other != spec for other in others)
    assert len({spec, *others}) == 4


def test_copies_and_stored_ones_are_the_same_object() -> None:
    spec = TensorSpec((5,), "int8")
    assert copy.copy(spec) is spec
    assert copy.deepcopy(spec) is spec
    assert pickle.loads(pickle.dumps(spec)) is spec


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TensorSpec((2,), "float32").shape = (3,)  # type: ignore[misc]


def test_sizes_are_python_integers_for_every_caller() -> None:
    assert type(TensorSpec((np.int64(12345),), "float32").shape[0]) is int


def test_a_size_that_is_cut_off_makes_no_second_object() -> None:
    spec = TensorSpec((12346,), "float32")
    assert TensorSpec((12346.5,), "float32") is spec is TensorSpec((12346,), "float32")


def test_threads_that_ask_at_once_get_the_same_object() -> None:
    found: list[TensorSpec] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.extend(TensorSpec((n, 77), "float32") for n in range(200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(spec) for spec in found}) == 200


def test_specs_that_nobody_holds_are_forgotten() -> None:
    spec = TensorSpec((987654,), "float32")
    word = weakref.ref(spec)
    del spec
    gc.collect()
    assert word() is None
