"""All families of operators: importing this fills the table."""

from nnc.onnx.operators import (  # noqa: F401  (they register their operators)
    activation,
    attention,
    classical,
    control,
    conv,
    draws,
    elementwise,
    image,
    index,
    learning,
    maps,
    norm,
    pool,
    products,
    quantize,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
    text,
    trees,
)
from nnc.onnx.operators.table import find as find
