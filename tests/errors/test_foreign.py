"""Mistakes with arrays of other libraries: arrays that nnc cannot read where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, DTypeError
from tests.errors.reports import reports


class OnDevice:
    """An array on the second CUDA device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("it must not be asked for")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise AssertionError("nor copied")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


class Objects:
    """A table that holds strings."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array([1, "one"], object)


class Closed:
    """An array that only speaks DLPack, and refuses."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is closed")


def step(params: Any, batch: Any) -> Any:
    return params["w"] * batch


def test_an_argument_on_another_device() -> None:
    f = nnc.compile(step)
    with reports(ArgumentTypeError, "step", 'argument params["w"]', "OnDevice", "cuda:1", "x.cpu()", "x.get()"):
        f({"w": OnDevice()}, 1.0)


def test_a_derivative_of_an_array_on_another_device() -> None:
    with reports(ArgumentTypeError, "OnDevice", "cuda:1"):
        nnc.grad(step)({"w": OnDevice()}, 1.0)


def test_an_argument_on_another_device_beside_static_ones() -> None:
    f = nnc.compile(lambda n, x: x * n, static_argnums=0)
    with reports(ArgumentTypeError, "argument x", "cuda:1"):
        f(2, OnDevice())


def test_rows_on_another_device() -> None:
    with reports(ArgumentTypeError, "nnc.data.batches", "cuda:1"):
        nnc.data.batches([OnDevice()], 2)


def test_a_table_that_holds_objects() -> None:
    f = nnc.compile(step)
    with reports(DTypeError, "argument batch", "object", 'select_dtypes("number")'):
        f({"w": 1.0}, Objects())


def test_an_array_that_refuses_to_be_read() -> None:
    with reports(ArgumentTypeError, "argument rows", "Closed", "it is closed"):
        nnc.vmap(lambda rows: rows)(Closed())


def test_a_later_call_with_an_array_that_cannot_be_read() -> None:
    f, x = nnc.compile(step), np.ones(2, np.float32)
    torch = pytest.importorskip("torch")
    for _ in range(3):
        f({"w": torch.ones(2)}, x)
    with reports(ArgumentTypeError, 'argument params["w"]', "requires grad", "x.detach().cpu()"):
        f({"w": torch.ones(2, requires_grad=True)}, x)


def test_an_operand_that_carries_a_gradient_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = nnp.ones(2)
    with reports(ArgumentTypeError, "requires grad", "x.detach().cpu()"):
        x + torch.ones(2, requires_grad=True)
    with reports(ArgumentTypeError, "Sparse", "dense array"):
        nnc.scan(lambda c, x: (c, x), 0.0, torch.eye(2).to_sparse())
