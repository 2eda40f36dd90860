"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator, rows

rows({"MatMul": nnp.matmul, "Det": nnp.linalg.det})


@operator("Gemm")
def gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    left = nnp.transpose(a) if node.attributes.get("transA", 0) else a
    right = nnp.transpose(b) if node.attributes.get("transB", 0) else b
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
    product = nnp.matmul(left, right)
    product = product if alpha == 1 else _scaled(product, alpha)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: Any, factor: float) -> Any:
    if np.dtype(x.dtype).kind in "iu":
        return nnp.astype(nnp.astype(x, "float64") * factor, x.dtype)
    return x * np.asarray(factor, x.dtype)


@operator("Einsum")
def einsum(node: Node, *operands: Any) -> Any:
    return nnp.einsum(node.attributes["equation"].replace(" ", ""), *operands)
