from __future__ import annotations

import collections
import json
import math
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.base import dtypes
from nnc.errors import (
    ArgumentTypeError,
    FileFormatError,
    MissingFileError,
    NncError,
    TraceError,
    TreeError,
    UnsupportedError,
)
from nnc.io import layout, load, save


@dataclass(frozen=True)
class Layer:
    w: Any
    b: Any = None
    activation: Any = np.tanh
    stride: int = 2


@dataclass(frozen=True)
class Model:
    layers: tuple[Layer, ...]
    scale: Any
    name: str = field(default="model", metadata={"static": True})


class Pair(NamedTuple):
    left: Any
    right: Any


def model(seed: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    arrays = [nnp.asarray(rng.normal(size=shape).astype(np.float32)) for shape in ((2, 3), (3,), (3, 1), ())]
    return Model((Layer(arrays[0], arrays[1]), Layer(arrays[2])), arrays[3])


def same(x: Any, y: Any) -> bool:
    """Whether two trees have one structure and the same bits."""
    a, b = nnc.tree.leaves(x), nnc.tree.leaves(y)
    return nnc.tree.structure(x) == nnc.tree.structure(y) and all(map(same_leaf, a, b))


def same_leaf(x: Any, y: Any) -> bool:
    if not hasattr(x, "dtype"):
        return type(x) is type(y) and (x == y or x != x)
    x, y = np.asarray(x), np.asarray(y)
    return (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())


# -- round trips -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_every_dtype_and_shape_keeps_its_bits(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).integers(0, 2, (*shape, dtype.itemsize)).astype(np.uint8)
    x = np.ascontiguousarray(data).view(dtype).reshape(shape)
    save(tmp_path / "x", {"x": nnc.Array(x)})
    back = load(tmp_path / "x")["x"]
    assert isinstance(back, nnc.Array) and same_leaf(back, x)
    assert same_leaf(load(tmp_path / "x", like={"x": nnc.ShapeDtypeStruct(shape, dtype)})["x"], x)


def test_nan_inf_and_negative_zero_survive(tmp_path: Path) -> None:
    x = nnp.asarray(np.array([np.nan, np.inf, -np.inf, -0.0]))
    save(tmp_path / "x", [x, float("nan"), math.inf, -math.inf])
    back = load(tmp_path / "x")
    assert same_leaf(back[0], x) and math.isnan(back[1]) and back[2:] == [math.inf, -math.inf]


def test_strided_arrays_are_written_in_order(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(3, 4)
    save(tmp_path / "x", {"t": x.T, "s": x[::2, ::-1], "c": nnp.asarray(x).T})
    back = load(tmp_path / "x")
    assert np.array_equal(back["t"], x.T) and np.array_equal(back["s"], x[::2, ::-1])
    assert np.array_equal(back["c"], x.T)


NESTS = [
    nnp.ones(2),
    None,
    [],
    {},
    (),
    {"a": {}, "b": [None, ()]},
    [nnp.ones(1), (nnp.zeros(2), {"k": nnp.ones(())}), None],
    {0: nnp.ones(1), 1: nnp.zeros(1)},
    {-1: nnp.ones(1), 10: nnp.zeros(1)},
    {(0, "a"): nnp.ones(1), (1, "b"): nnp.zeros(1)},
    {"a.b": nnp.zeros(1), "a": {"b": nnp.ones(1)}},
    {"": nnp.zeros(1), "array": nnp.ones(1)},
    {"0": {"x": nnp.zeros(1)}, "[0]": [nnp.ones(1)]},
    {'quote"': nnp.zeros(1), "ünï": nnp.ones(1), "with space": nnp.ones(2)},
    {"lr": 0.1, "steps": 3, "on": True, "name": "relu", "x": nnp.ones(1)},
    {True: nnp.ones(1)},
    {"__metadata__": nnp.ones(2), "a": {"__metadata__": nnp.zeros(1)}},
    {"__metadata__": 3},
    {1.5: nnp.ones(1), 1: {5: nnp.zeros(1)}},
    {None: nnp.ones(1), "null": nnp.zeros(1), '{"key": null}': nnp.full(1, 2.0)},
    {(1.5, None, ("x",)): nnp.ones(1), (): nnp.zeros(1)},
    {"\ud800": nnp.ones(1), "x": "\ud800"},
    {"a\0b\n": nnp.ones(1), "\u0661": nnp.zeros(1), "k" * 5000: nnp.ones(2)},
    {"n": 1 << 8000, "m": -(1 << 8000), 1 << 8000: None},
]


@pytest.mark.parametrize("tree", NESTS, ids=range(len(NESTS)))
def test_nests_come_back_without_like(tmp_path: Path, tree: Any) -> None:
    save(tmp_path / "x", tree)
    assert same(load(tmp_path / "x"), tree)
    assert same(load(tmp_path / "x", like=tree), tree)


keys = st.one_of(
    st.text(max_size=4), st.integers(-2, 12), st.floats(allow_nan=False), st.none(), st.booleans(),
    st.tuples(st.text(max_size=1), st.integers(0, 1)),
    st.sampled_from(["__metadata__", "array", "nnc", "null", "true", "1.5", '{"key": 1.5}', "\ud800"]),
)  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.complex_numbers(allow_nan=False),
    st.sampled_from([nnp.ones(2), nnp.zeros((0, 1)), nnp.asarray(np.int8(3)), nnp.ones((), dtype="bfloat16")]),
    st.sampled_from([nnp.zeros((2, 0), dtype="complex128"), nnp.ones((), dtype="complex128"), nnp.ones(3, dtype="bool")]),
)  # fmt: skip


def _unsortable(tree: dict[Any, Any]) -> bool:
    return len({type(key) for key in tree}) < 2


trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3).filter(_unsortable),
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(tree=trees)
def test_every_saved_tree_is_loaded(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.mktemp("io") / "x"
    save(path, tree)
    assert same(load(path), tree)


def test_dataclasses_and_namedtuples_come_back_with_like_and_as_dicts_without(tmp_path: Path) -> None:
    tree = {"model": model(), "pair": Pair(nnp.ones(1), [nnp.zeros(2)])}
    save(tmp_path / "x", tree)
    back = load(tmp_path / "x", like={"model": model(1), "pair": Pair(nnp.zeros(1), [nnp.ones(2)])})
    assert same(back, tree) and back["model"].layers[0].activation is np.tanh
    plain = load(tmp_path / "x")
    assert np.array_equal(plain["model"]["layers"][0]["w"], tree["model"].layers[0].w)
    assert plain["model"]["layers"][1]["b"] is None and np.array_equal(plain["pair"]["left"], [1])


@dataclass
class Progress:
    """The state of a training as people write it."""

    params: Any
    step: int = 0
    name: str = ""
    depth: int = field(default=1, metadata={"static": True})


def test_numbers_and_strings_in_dataclasses_are_saved(tmp_path: Path) -> None:
    save(tmp_path / "x", Progress([nnp.ones(2), Progress(1.5, step=7)], 5, "run", depth=9))
    found = load(tmp_path / "x", like=Progress([nnp.zeros(2), Progress(0.0)], 0, "run"))
    assert (found.step, found.name, found.depth) == (5, "run", 1)
    assert (found.params[1].step, found.params[1].params) == (7, 1.5)
    assert np.array_equal(found.params[0], [1, 1])
    plain = load(tmp_path / "x")
    assert plain["step"] == 5 and plain["params"][1]["step"] == 7 and "depth" not in plain
    with pytest.raises(TreeError, match=r"name: 'run' in the file, 'other' in `like`"):
        load(tmp_path / "x", like=Progress([nnp.zeros(2), Progress(0.0)], 0, "other"))
    safetensors.numpy.save_file({"params": np.ones(2)}, tmp_path / "y")
    assert load(tmp_path / "y", like=Progress(np.zeros(2), 3)).step == 3


def test_numbers_come_back_as_like_has_them(tmp_path: Path) -> None:
    following = nnc.compile(lambda s: Progress(s.params * 2, s.step + 1))
    following(Progress(1.5, 6))
    made = following(Progress(1.5, 7))
    assert made.step.dtype == "int64"
    save(tmp_path / "x", made)
    back = load(tmp_path / "x", like=Progress(0.0))
    assert (back.step, back.params) == (8, 3.0) and (type(back.step), type(back.params)) == (int, float)
    save(tmp_path / "y", back)
    array = load(tmp_path / "y", like=following(back)).step
    assert array.dtype == "int64" and array == 8
    for like in (nnp.zeros((), "int8"), nnp.zeros(1, "int64"), nnp.zeros((), "bool"), 0.5, True):
        save(tmp_path / "z", {"n": 300})
        with pytest.raises(TreeError, match=r"n: a Python int in the file"):
            load(tmp_path / "z", like={"n": like})


def test_complex_numbers_come_back(tmp_path: Path) -> None:
    tree = {"a": 1 + 2j, "b": complex("nan")}
    save(tmp_path / "x", tree)
    assert load(tmp_path / "x", like=tree)["a"] == load(tmp_path / "x")["a"] == 1 + 2j
    assert np.isnan(load(tmp_path / "x")["b"])


@pytest.mark.parametrize(
    "value", [{1, 2}, b"x", np.array(["a"]), np.array([None]), np.datetime64("2020-01-01")], ids=repr
)
def test_leaves_that_no_file_holds_are_refused_by_their_paths(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"a\.0 is an? .*, which a file cannot hold"):
        save(tmp_path / "x", {"a": [value]})
    assert not (tmp_path / "x").exists()


def test_functions_come_from_like(tmp_path: Path) -> None:
    save(tmp_path / "x", {"f": math.tanh, "w": nnp.ones(1)})
    assert load(tmp_path / "x", like={"f": math.tanh, "w": nnp.zeros(1)})["f"] is math.tanh
    with pytest.raises(UnsupportedError, match=r"f was tanh.*(\n.*)*Fix: pass like"):
        load(tmp_path / "x")


def test_ordered_and_default_dicts_come_back(tmp_path: Path) -> None:
    tree = collections.OrderedDict([("b", nnp.ones(1)), ("a", collections.defaultdict(list, x=nnp.ones(2)))])
    save(tmp_path / "x", tree)
    assert list(load(tmp_path / "x")) == ["b", "a"]
    assert same(load(tmp_path / "x", like=tree), tree)


def test_parameters_with_optimizer_state_continue_exactly(tmp_path: Path) -> None:
    params, optimizer = {"w": nnp.ones(3)}, optim.adam(optim.linear_schedule(0.1, 0.0, 10))
    state = optimizer.init(params)

    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(params, state, params)
        return optim.apply_updates(params, updates), state

    for _ in range(3):
        params, state = step(params, state)
    save(tmp_path / "x", (params, state))
    back = load(tmp_path / "x", like=({"w": nnp.zeros(3)}, optimizer.init(params)))
    assert same(back, (params, state)) and same(step(*back), step(params, state))


# -- the format --------------------------------------------------------------------------------------------------------


def test_names_are_dotted_paths_that_other_programs_read(tmp_path: Path) -> None:
    save(tmp_path / "x", {"model": model(), "half": nnp.asarray([1.0], dtype="bfloat16")})
    found = safetensors.numpy.load_file(tmp_path / "x")
    assert set(found) == {"half", "model.layers.0.w", "model.layers.0.b", "model.layers.1.w", "model.scale"}
    assert found["half"].dtype == ml_dtypes.bfloat16
    assert np.array_equal(found["model.layers.0.w"], model().layers[0].w)


def test_tensors_lie_where_their_dtypes_may_lie(tmp_path: Path) -> None:
    shapes = {
        "a": ((3,), "int8"),
        "b": ((5,), "float64"),
        "c": ((3,), "bfloat16"),
        "d": ((1,), "complex64"),
        "e": ((), "bool"),
    }
    save(tmp_path / "x", {name: nnp.ones(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()})
    whole = (tmp_path / "x").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    assert size % 8 == 0
    for name, entry in json.loads(whole[8 : 8 + size]).items():
        if name != "__metadata__":
            assert entry["data_offsets"][0] % np.dtype(dtypes.as_dtype(shapes[name][1])).itemsize == 0


def test_files_of_other_programs_load_by_name(tmp_path: Path) -> None:
    arrays = {"layers.0.weight": np.ones((2, 3), np.float32), "layers.0.bias": np.zeros(3, np.float16)}
    safetensors.numpy.save_file(arrays, tmp_path / "x", metadata={"format": "pt"})
    assert same(load(tmp_path / "x"), {name: nnc.Array(x) for name, x in arrays.items()})
    like = {"layers": [{"weight": nnp.zeros((2, 3)), "bias": nnp.zeros(3, dtype="float16")}]}
    assert np.array_equal(load(tmp_path / "x", like=like)["layers"][0]["weight"], arrays["layers.0.weight"])


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    save(path, nnp.ones(1))

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, nnp.zeros(1000))
    assert os.listdir(tmp_path) == ["x"] and np.array_equal(load(path), [1])
    monkeypatch.undo()
    save(path, nnp.zeros(3))
    assert os.listdir(tmp_path) == ["x"] and np.array_equal(load(path), [0, 0, 0])


def test_files_have_ordinary_permissions(tmp_path: Path) -> None:
    save(tmp_path / "x", nnp.ones(1))
    (tmp_path / "y").touch()
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == stat.S_IMODE((tmp_path / "y").stat().st_mode)


def test_a_loaded_array_outlives_its_file(tmp_path: Path) -> None:
    save(tmp_path / "x", nnp.arange(1000))
    x = load(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"")
    assert int(x.sum()) == 499500


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_all_differences_to_like_are_listed(tmp_path: Path) -> None:
    save(tmp_path / "x", {"a": nnp.ones(2), "b": nnp.ones(3), "c": nnp.ones(4), "name": "relu", "n": 3})
    like = {"a": nnp.ones(5), "b": nnp.ones(3, dtype="float16"), "d": nnp.ones(1), "name": "tanh", "n": "3"}
    with pytest.raises(TreeError) as error:
        load(tmp_path / "x", like=like)
    text = str(error.value)
    for line in (
        "a: float32[2] in the file, float32[5] in `like`",
        "b: float32[3] in the file, float16[3] in `like`",
        "c: float32[4] in the file, missing in `like`",
        "d: missing in the file, float32[1] in `like`",
        "name: 'relu' in the file, 'tanh' in `like`",
        "n: a Python int in the file, '3' in `like`",
    ):
        assert line in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="there is no file") as error:
        load(tmp_path / "nothing")
    assert isinstance(error.value, FileNotFoundError) and isinstance(error.value, NncError)
    with pytest.raises(MissingFileError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(MissingFileError, match="no directory"):
        save(tmp_path / "no" / "x", nnp.ones(1))


def test_a_file_cut_anywhere_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save(path, {"a": nnp.ones(2), "b": [nnp.ones(3)]})
    whole = path.read_bytes()
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        with pytest.raises(FileFormatError, match="no whole safetensors file"):
            load(path)


def test_any_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    tree = {"a": nnp.ones(2), "b": [nnp.ones(3), (None, 0.5, "text")], "z": np.ones(1, np.complex128)}
    save(path, tree)
    whole, passed = path.read_bytes(), 0
    for i in range(len(whole)):
        for change in (1, 0x20):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ change]) + whole[i + 1 :])
            try:
                found = load(path)
            except FileFormatError:
                continue
            passed += 1
            assert same(found, {**tree, "z": nnp.asarray(tree["z"])})
    assert passed <= 2 * len("nnc.check")  # without its name the checksum is one more text of another program


def test_large_tensors_are_under_the_checksum_as_a_whole(tmp_path: Path) -> None:
    path, size = tmp_path / "x", 3 * (1 << 16) + 13
    save(path, {"x": np.arange(size).astype(np.uint8), "y": nnp.zeros(0)})
    whole = bytearray(path.read_bytes())
    for i in (size, size // 2, 1):
        damaged = bytearray(whole)
        damaged[-i] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="its checksum is"):
            load(path)
    whole[-size : -size + (1 << 17)] = whole[-size + (1 << 16) : -size + (1 << 17)] + whole[-size : -size + (1 << 16)]
    assert np.arange(size).astype(np.uint8).tobytes() == bytes(whole[-size:])  # its blocks are alike
    path.write_bytes(whole)
    load(path)


def test_files_without_a_checksum_load(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save(path, {"x": nnp.ones(2), "n": 3})
    with safetensors.safe_open(path, framework="numpy") as file:
        texts = {name: text for name, text in file.metadata().items() if name != "nnc.check"}
        safetensors.numpy.save_file({"x": file.get_tensor("x")}, tmp_path / "y", metadata=texts)
    assert same(load(tmp_path / "y"), {"x": nnp.ones(2), "n": 3})


@pytest.mark.parametrize(
    "header",
    [
        "", "{", "[]", "3", "{}", '{"version": 1}', '{"version": 1, "dtypes": {}, "tree": 3}',
        '{"version": 1, "dtypes": {}, "tree": {}}', '{"version": 1, "dtypes": {}, "tree": {"tensor": "y"}}',
        '{"version": 1, "dtypes": {}, "tree": {"none": null}}', '{"version": 1, "dtypes": {}, "tree": {"list": 5}}',
        '{"version": 1, "dtypes": {}, "tree": {"what": 5}}',
        '{"version": 1, "dtypes": {}, "tree": {"dict": [[{"tuple": 3}, {"value": 1}]]}}',
        '{"version": 1, "dtypes": {"x": "complex128"}, "tree": {"tensor": "x"}}',
        '{"version": 1, "dtypes": {}, "tree": {"list": [{"tensor": "x"}, {"value": "a", "type": "float"}]}}',
        '{"version": 1, "dtypes": {}, "tree": {"dict": [[["k"], {"tensor": "x"}]]}}',
        '{"version": 99, "dtypes": {}, "tree": {"tensor": "x"}}',
        '{"version": 1, "dtypes": {}, "tree": ' + '{"list": [' * 5000 + '{"tensor": "x"}' + "]}" * 5000 + "}",
    ],
)  # fmt: skip
def test_a_forged_description_of_the_tree_is_refused(tmp_path: Path, header: str) -> None:
    safetensors.numpy.save_file({"x": np.ones(3)}, tmp_path / "x", metadata={"nnc": header})
    with pytest.raises(FileFormatError):
        load(tmp_path / "x")


def test_a_dtype_that_nnc_lacks_is_named(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F8_E5M2", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(FileFormatError, match="tensor x"):
        load(tmp_path / "x")


def test_swapped_arguments_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="not a path"):
        save({"w": nnp.ones(1)}, tmp_path / "x")
    with pytest.raises(ArgumentTypeError, match="not a path"):
        load({"w": nnp.ones(1)})
    with pytest.raises(ArgumentTypeError, match="is a directory"):
        save(tmp_path, nnp.ones(1))


@pytest.mark.parametrize(
    ("tree", "text"), [({"a": 10**5000}, r"a is an int of \d+ bits"), ({10**5000: 1}, r"a key of \d+ bits")]
)
def test_numbers_that_no_file_holds_are_named(tmp_path: Path, tree: Any, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        save(tmp_path / "x", tree)


def test_a_tree_that_could_not_be_loaded_leaves_the_file_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    save(path, {"w": nnp.ones(1)})
    before = path.read_bytes()
    nan = float("nan"), float("nan")
    with pytest.raises(UnsupportedError, match="two leaves have one name"):
        save(path, {nan[0]: nnp.ones(1), nan[1]: nnp.zeros(1)})
    monkeypatch.setattr(layout, "PLAIN_NAME", re.compile(".+"))  # as if nobody had thought of it
    for tree in ({"__metadata__": nnp.ones(2)}, {"a.b": nnp.zeros(1), "a": {"b": nnp.ones(1)}}):
        with pytest.raises(UnsupportedError, match=r"could not be loaded again(.*\n)*.*Fix:"):
            save(path, tree)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x"]


def test_keys_that_no_file_holds_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="has a key 1j"):
        save(tmp_path / "x", {1j: nnp.ones(1)})
    assert not os.listdir(tmp_path)


def test_saving_a_tracer_names_the_leaf(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        save(tmp_path / "x", {"w": x})
        return x

    with pytest.raises(TraceError, match="w is float32"):
        nnc.compile(f)(nnp.ones(1))
