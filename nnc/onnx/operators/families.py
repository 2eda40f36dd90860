"""All families of operators: importing this fills the table."""

from nnc.onnx.operators import activation, elementwise, index, norm, products, reduce, shape
from nnc.onnx.operators.table import find

__all__ = ["activation", "elementwise", "find", "index", "norm", "products", "reduce", "shape"]
