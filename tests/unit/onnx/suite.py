"""The standard's own cases of the package `onnx`: models with inputs and the outputs that they are to give.

    python -m tests.unit.onnx.suite [NAME ...] [--failures]

prints how many pass, by operator. A NAME is a part of cases' names.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader

import nnc


class Case(NamedTuple):
    """A model, pairs of inputs and outputs, and how far outputs may lie apart."""

    name: str
    model: onnx.ModelProto
    sets: Sequence[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """The operator that the case is about."""
        nodes = self.model.graph.node
        return str(nodes[0].op_type) if len(nodes) == 1 else self.name.split("_")[1]


@functools.cache
def cases() -> tuple[Case, ...]:
    """All cases whose models the package holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            case for kind in ("node", "simple", "pytorch-operator", "pytorch-converted") for case in _of_kind(kind)
        ]
    return tuple(sorted(found, key=lambda case: case.name))


def _of_kind(kind: str) -> Iterator[Case]:
    for case in loader.load_model_tests(kind=kind):
        if case.model is not None:
            yield Case(case.name, case.model, case.data_sets, case.rtol, case.atol)
        elif case.model_dir is not None:
            folder = Path(case.model_dir)
            model = onnx.load(folder / "model.onnx")
            sets = [_read_set(path, model) for path in sorted(folder.glob("test_data_set_*"))]
            yield Case(case.name, model, sets, case.rtol, case.atol)


def _read_set(folder: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    return tuple(
        [
            _read(folder / f"{what}_{index}.pb", value.type)
            for index, value in enumerate(values)
            if (folder / f"{what}_{index}.pb").exists()
        ]
        for what, values in (("input", model.graph.input), ("output", model.graph.output))
    )  # type: ignore[return-value]


def _read(path: Path, kind: Any) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def run(case: Case) -> str:
    """Runs a case; says how it ran.

    Raises:
        AssertionError: an output is another one.
    """
    model = nnc.onnx.load(case.model.SerializeToString())
    for inputs, outputs in case.sets:
        names = [value.name for value in model.inputs]
        found = model({name: _given(value) for name, value in zip(names, inputs, strict=False)})
        assert len(found) == len(outputs), f"{len(found)} outputs for {len(outputs)}"
        for value, wanted in zip(found, outputs, strict=True):
            compare(value, wanted, case)
    return model.explain().splitlines()[-1].partition(":")[0]


def _given(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return list(map(_given, value)) if isinstance(value, list) else value if value is None else np.asarray(value)


def compare(value: Any, wanted: Any, case: Case) -> None:
    """Compares an output with the one that the standard gives, dtypes included."""
    if isinstance(wanted, list):
        assert isinstance(value, list), "an output is no sequence"
        assert len(value) == len(wanted), f"a sequence has {len(value)} parts for {len(wanted)}"
        for part, other in zip(value, wanted, strict=True):
            compare(part, other, case)
        return
    if wanted is None:
        assert value is None, "an output is there"
        return
    found, wanted = np.asarray(value), _given(wanted)
    assert found.shape == wanted.shape, f"shape {found.shape} for {wanted.shape}"
    if wanted.dtype.kind in "OSU":
        assert [str(v) for v in found.ravel()] == [_text(v) for v in wanted.ravel()], "strings differ"
        return
    assert found.dtype == wanted.dtype, f"{found.dtype} for {wanted.dtype}"
    kinds = "fV" if wanted.dtype.kind in "fV" else wanted.dtype.kind
    if wanted.dtype.kind == "c":
        np.testing.assert_allclose(found, wanted, case.rtol, case.atol)
    elif kinds == "fV":
        narrow = (
            2 * float(ml_dtypes.finfo(wanted.dtype).eps) if wanted.dtype.itemsize == 2 else 0.0
        )  # rounded once, or thrice
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), max(case.rtol, narrow), max(case.atol, narrow * 0.25)
        )
    else:
        np.testing.assert_array_equal(found, wanted)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen cases and prints a table of operators; 1 where one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.unit.onnx.suite", description="Runs the standard's own cases."
    )
    parser.add_argument("names", nargs="*", help="parts of cases' names (default: all)")
    parser.add_argument("--failures", action="store_true", help="print what each failing case says")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if not options.names or any(name in case.name for name in options.names)]
    passed: collections.Counter[str] = collections.Counter()
    failed: collections.Counter[str] = collections.Counter()
    ways: collections.Counter[str] = collections.Counter()
    for case in chosen:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ways[run(case)] += 1
            passed[case.operator] += 1
        except Exception as error:
            failed[case.operator] += 1
            if options.failures:
                print(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    print(f"{sum(passed.values())} of {len(chosen)} cases pass; {dict(ways)}")
    print(*(f"{name}: {count} of {count + passed[name]} fail" for name, count in sorted(failed.items())), sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
