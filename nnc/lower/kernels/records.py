"""The rule by which argmax and argmin choose among elements, for the printers of all devices."""

from __future__ import annotations

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.lower.kernels.builder import Code, Value


@record
class Record:
    """The rule by which one element beats another: a greater one, a smaller one, or NaN.

    Attributes:
        kind: the dtype of the elements in memory; bools are bytes.
        predicate: "gt" or "lt".
    """

    kind: DType
    predicate: str

    def better(self, code: Code, x: Value, best: Value) -> Value:
        """Whether x, which stands later, beats the record so far."""
        beats = code.compare(self.predicate, x, best)
        if not dtypes.is_float(x.dtype):
            return beats
        is_number = code.compare("eq", best, best)
        return code.and_(is_number, code.or_(beats, code.compare("uno", x, x)))

    def take(self, code: Code, x: Value, best: Value) -> Value:
        """Returns the better one of two, where order does not matter; NaN is kept."""
        if dtypes.is_float(x.dtype):
            return code.select(self.better(code, x, best), x, best)
        name = ("u" if x.dtype in dtypes.UNSIGNED else "s") + ("max" if self.predicate == "gt" else "min")
        return code.intrinsic(name, x, best)


def record_of(dtype: DType, predicate: str) -> Record:
    """Returns the record rule of a dtype.

    Args:
        predicate: "gt" for the greatest element, "lt" for the smallest.
    """
    return Record(dtypes.uint8 if dtypes.is_bool(dtype) else dtype, predicate)
