from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingFileError, NncError, UnsupportedError

onnx = pytest.importorskip("onnx")
from tests.unit.onnx.models import FLOAT, INT64, dense, graph, model, node  # noqa: E402

X = np.array([[1.0, 2.0, 3.0]], np.float32)
Y = np.array([[0.0 + 0.2 * 2 + 0.4 * 3 - 0.5, 0.1 + 0.3 * 2 + 0.5 * 3 + 0.5]], np.float32)


def external(
    location: str, offset: Any = None, length: Any = None, dims: tuple[int, ...] = (4,), kind: int = FLOAT
) -> bytes:
    """A model whose only value lies in another file."""
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    return model([node("Identity", ["w"], ["y"])], {}, {"y": (kind, dims)}, {"w": tensor})


def raw(dims: tuple[int, ...], data: bytes, kind: int = FLOAT) -> bytes:
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=dims, raw_data=data)
    return model([node("Identity", ["w"], ["y"])], {}, {"y": (FLOAT, dims)}, {"w": tensor})


def test_a_model_comes_from_bytes_a_path_or_a_string(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(dense())
    for source in (dense(), bytearray(dense()), path, str(path)):
        np.testing.assert_allclose(nnc.onnx.load(source)({"x": X})[0], Y, rtol=1e-6)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nnc\.onnx\.load: there is no file .*none\.onnx"):
        nnc.onnx.load(tmp_path / "none.onnx")


def test_other_things_than_files_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="bytes_or_path is a int"):
        nnc.onnx.load(3)  # type: ignore[arg-type]
    with pytest.raises(FileFormatError, match="no model"):
        nnc.onnx.load(b"\xff" * 30)
    with pytest.raises(FileFormatError, match="no graph"):
        nnc.onnx.load(b"")


@pytest.mark.parametrize("offset", [None, 0, 4, 64])
def test_weights_of_their_own_file_are_mapped(tmp_path: Path, offset: int | None) -> None:
    held = np.arange(40, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(held.tobytes())
    first = (offset or 0) // 4
    f = nnc.onnx.load(external("w.bin", offset, 16), base=tmp_path)
    np.testing.assert_array_equal(f({})[0], held[first : first + 4])
    path = tmp_path / "m.onnx"
    path.write_bytes(external("w.bin", offset, 16))
    np.testing.assert_array_equal(nnc.onnx.load(path)({})[0], held[first : first + 4])


def test_weights_of_their_own_file_need_its_folder() -> None:
    with pytest.raises(ArgumentError, match="'w.bin' beside the model"):
        nnc.onnx.load(external("w.bin"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files and links, below one with a file that no model there may read."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (inner / "ok.bin").write_bytes(bytes(16))
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inner / "way").symlink_to(tmp_path)
    os.link(tmp_path / "secret.bin", inner / "hard.bin")
    return inner


@pytest.mark.parametrize(
    "location", ["../secret.bin", "a/../../secret.bin", "link.bin", "way/secret.bin", "hard.bin", "", "."]
)
def test_paths_that_leave_the_folder_are_refused(folder: Path, location: str) -> None:
    with pytest.raises((FileFormatError, NncError)) as caught:
        nnc.onnx.load(external(location), base=folder)
    assert "leaves the model's folder" in str(caught.value)


def test_absolute_paths_are_refused(folder: Path) -> None:
    with pytest.raises(FileFormatError, match="leaves the model's folder"):
        nnc.onnx.load(external(str(folder / "ok.bin")), base=folder)


@pytest.mark.parametrize(
    ("offset", "length", "dims"),
    [
        (1 << 40, None, (4,)), (-4, None, (4,)), (0, 4, (4,)), (0, 1 << 40, (4,)), (0, None, (1 << 40,)), (4, None, (4,)),
        (0, None, (-4,)), ("x", None, (4,)), (0, None, (1 << 40, 1 << 40)), (0, -16, (1 << 62, 8)),
    ],
)  # fmt: skip
def test_sizes_that_a_file_does_not_have_are_refused(
    folder: Path, offset: Any, length: Any, dims: tuple[int, ...]
) -> None:
    with pytest.raises(FileFormatError, match="tensor 'w'"):
        nnc.onnx.load(external("ok.bin", offset, length, dims), base=folder)


@pytest.mark.parametrize(
    ("dims", "data"),
    [((4,), b"1234"), ((1 << 40,), b"1234"), ((-4,), bytes(16)), ((2, -2), bytes(16)), ((1,) * 65, bytes(4)), ((), b"")],
)  # fmt: skip
def test_shapes_that_do_not_fit_the_bytes_are_refused(dims: tuple[int, ...], data: bytes) -> None:
    with pytest.raises(FileFormatError, match="tensor 'w'"):
        nnc.onnx.load(raw(dims, data))


def test_a_shape_without_any_data_is_refused() -> None:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[1 << 34])
    with pytest.raises(FileFormatError, match="the file holds"):
        nnc.onnx.load(model([node("Identity", ["w"], ["y"])], {}, {"y": (FLOAT, [1])}, {"w": tensor}))


def test_elements_of_an_unknown_type_are_refused() -> None:
    with pytest.raises(FileFormatError, match="type 99"):
        nnc.onnx.load(raw((4,), bytes(16), kind=99))


def test_names_are_written_once() -> None:
    twice = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(FileFormatError, match="'y' is written twice"):
        nnc.onnx.load(model(twice, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    proto = onnx.ModelProto.FromString(dense())
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(FileFormatError, match="two weights have the name 'w'"):
        nnc.onnx.load(proto.SerializeToString())


def test_cycles_and_values_that_nothing_makes_are_refused() -> None:
    ring = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]
    with pytest.raises(FileFormatError, match="reads 'b', which is neither an input nor a weight"):
        nnc.onnx.load(model(ring, {"x": (FLOAT, [2])}, {"b": (FLOAT, [2])}))({"x": np.zeros(2, np.float32)})


def test_functions_that_call_themselves_are_refused() -> None:
    inner = [node("F", ["x"], ["y"], domain="my")]
    function = onnx.helper.make_function("my", "F", ["x"], ["y"], inner, [onnx.helper.make_opsetid("my", 1)])
    with pytest.raises(FileFormatError, match="calls itself"):
        nnc.onnx.load(model(inner, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, functions=[function]))


def doubling() -> bytes:
    """40 functions, each of which calls the next one twice."""

    def body(name: str, inner: str) -> Any:
        nodes = [node(inner, ["x"], ["t"], domain="my"), node(inner, ["t"], ["y"], domain="my")]
        return onnx.helper.make_function("my", name, ["x"], ["y"], nodes, [onnx.helper.make_opsetid("my", 1)])

    last = onnx.helper.make_function(
        "my", "F40", ["x"], ["y"], [node("Neg", ["x"], ["y"])], [onnx.helper.make_opsetid("", 18)]
    )
    functions = [body(f"F{i}", f"F{i + 1}") for i in range(40)] + [last]
    return model([node("F0", ["x"], ["y"], domain="my")], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, functions=functions)


def test_functions_that_double_each_other_are_refused_soon() -> None:
    with pytest.raises(FileFormatError, match="nodes of 82"):
        nnc.onnx.load(doubling())({"x": np.zeros(2, np.float32)})


def test_nested_branches_are_read() -> None:
    leaf = [node("Constant", [], ["c"], value_float=1.0)]
    inner = graph(leaf, {}, {"c": (FLOAT, [])})
    for _ in range(20):
        branches = {"then_branch": inner, "else_branch": graph(leaf, {}, {"c": (FLOAT, [])})}
        inner = graph([node("If", ["p"], ["c"], **branches)], {}, {"c": (FLOAT, [])})
    assert nnc.onnx.load(model(inner.node, {}, {"c": (FLOAT, [])}, {"p": np.array(True)}))({})[0] == 1


def nested() -> bytes:
    """500 branches within each other."""

    def field(number: int, data: bytes) -> bytes:
        size, length = len(data), b""
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                return bytes([number << 3 | 2]) + length + data

    inner = b""
    for _ in range(500):
        attribute = field(1, b"then_branch") + field(6, inner) + b"\xa0\x01\x05"
        inner = field(1, field(2, b"c") + field(4, b"If") + field(5, attribute))
    return field(7, inner)


def test_branches_that_lie_too_deep_are_refused() -> None:
    with pytest.raises(FileFormatError, match="no model"):
        nnc.onnx.load(nested())


def test_an_operator_that_nnc_does_not_know_is_named_with_its_node() -> None:
    odd = [node("Frobnicate", ["x"], ["y"], name="odd one", domain="com.example")]
    f = nnc.onnx.load(model(odd, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    with pytest.raises(UnsupportedError, match=r"no operator 'Frobnicate' of the domain 'com\.example'") as caught:
        f({"x": np.zeros(2, np.float32)})
    assert "odd one" in str(caught.value)


GIANTS = {
    "ConstantOfShape": ([node("ConstantOfShape", ["s"], ["y"])], {"s": np.array([1 << 34])}),
    "overflowing": ([node("ConstantOfShape", ["s"], ["y"])], {"s": np.array([1 << 40, 1 << 40])}),
    "Expand": ([node("Expand", ["w", "s"], ["y"])], {"w": np.zeros(1, np.float32), "s": np.array([1 << 34])}),
    "Tile": ([node("Tile", ["w", "s"], ["y"])], {"w": np.zeros(1, np.float32), "s": np.array([1 << 34])}),
    "Range": ([node("Range", ["a", "b", "c"], ["y"])], {"a": np.array(0), "b": np.array(1 << 34), "c": np.array(1)}),
    "Pad": ([node("Pad", ["w", "s"], ["y"])], {"w": np.zeros(1, np.float32), "s": np.array([0, 1 << 34])}),
    "EyeLike": (
        [node("ConstantOfShape", ["s"], ["t"]), node("EyeLike", ["t"], ["y"])], {"s": np.array([1 << 17, 1 << 17])},
    ),
    "OneHot": (
        [node("OneHot", ["i", "d", "v"], ["y"])],
        {"i": np.array([1]), "d": np.array(1 << 34), "v": np.array([0.0, 1.0], np.float32)},
    ),
    "Add": ([node("Add", ["v", "w"], ["y"])], {"v": np.zeros((1 << 14, 1), np.float32), "w": np.zeros((1, 1 << 14), np.float32)}),
    "HannWindow": ([node("HannWindow", ["n"], ["y"])], {"n": np.array(1 << 34)}),
}  # fmt: skip


def hostile() -> list[bytes]:
    """A file of each kind that is refused; without a graph, with wrong sizes, cycles, functions and branches without an end."""
    giants = [model(nodes, {}, {"y": (FLOAT, [1])}, weights) for nodes, weights in GIANTS.values()]
    ring = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]
    cycle = model(ring, {"x": (FLOAT, [2])}, {"b": (FLOAT, [2])})
    call = [node("F", ["x"], ["y"], domain="my")]
    function = onnx.helper.make_function("my", "F", ["x"], ["y"], call, [onnx.helper.make_opsetid("my", 1)])
    recursive = model(call, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, functions=[function])
    wrong = [raw((4,), b"1234"), raw((1 << 40,), b"1234"), raw((-4,), bytes(16)), external("../secret.bin", 0, 1 << 40)]
    return [*giants, cycle, recursive, doubling(), nested(), *wrong, b"\xff" * 30]


def test_hostile_files_end_soon_and_take_little_memory() -> None:
    """Within a second of processor time and 200 MB, in a process of its own, which has run a small model before."""
    program = textwrap.dedent("""
        import resource, sys, time
        import numpy as np
        import nnc
        from nnc.errors import NncError
        small, *files = (bytes.fromhex(text) for text in sys.stdin.read().split())
        x = {"x": np.zeros((1, 3), np.float32)}
        nnc.onnx.load(small)(x)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for place, data in enumerate(files):
            start = time.process_time()
            try:
                model = nnc.onnx.load(data)
                model({value.name: np.zeros(2, np.float32) for value in model.inputs})
            except NncError as error:
                assert str(error).startswith("nnc.onnx") or " bytes" in str(error), error
            else:
                raise SystemExit(f"file {place} is accepted")
            more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert more < 200_000, (place, more)
            assert time.process_time() - start < 1, (place, time.process_time() - start)
    """)
    given = " ".join(data.hex() for data in (dense(), *hostile()))
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_giant_sparse_weights_are_refused() -> None:
    proto = onnx.ModelProto.FromString(dense())
    sparse = proto.graph.sparse_initializer.add()
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    sparse.dims.extend([1 << 20, 1 << 20])
    with pytest.raises(FileFormatError, match="too large"):
        nnc.onnx.load(proto.SerializeToString())


def test_reading_takes_no_more_memory_than_the_file_for_weights_beside_it(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(1 << 31)
    f = nnc.onnx.load(external("w.bin", 0, 1 << 31, (1 << 29,)), base=tmp_path)
    assert f.outputs[0].shape == (1 << 29,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_integers_may_be_written_field_by_field() -> None:
    tensor = onnx.helper.make_tensor("w", INT64, [3], [1, -2, 3])
    f = nnc.onnx.load(model([node("Identity", ["w"], ["y"])], {}, {"y": (INT64, [3])}, {"w": tensor}))
    np.testing.assert_array_equal(f({})[0], [1, -2, 3])
