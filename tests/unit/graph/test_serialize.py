"""The JSON form: a graph that goes in comes out, and damaged text is refused."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.base.dtypes import ALL
from nnc.errors import ArgumentTypeError, GraphError, RegistryError
from nnc.graph import (
    Box,
    Command,
    Graph,
    GraphBuilder,
    TensorSpec,
    command,
    from_json,
    load_graph,
    save_graph,
    storable,
    structural_hash,
    structurally_equal,
    to_json,
)
from nnc.graph.rules import Rules
from nnc.graph.serialize import decode_array, decode_value, encode_array, encode_value

VALUES = [
    None, True, 1, 2**53, -(2**70), 0.1, -0.0, math.inf, -math.inf, math.nan, 1 - 2j, complex(math.inf, -0.0),
    "text", "", b"\x00\xff", (), [], (1, [2, (3.0, None)]), {"a": 1, 2: ("b",)}, slice(1, None, -2), frozenset({1, 2.5}),
    np.dtype("complex64"), np.dtype(ml_dtypes.bfloat16), np.float32(1.5), np.int8(-1), np.bool_(True), ml_dtypes.bfloat16(0.5),
    TensorSpec((2, 3), "bfloat16", "blocked16"), Box((1,), (2,)), (TensorSpec((), "bool"),),
]  # fmt: skip


def through_json(value: Any) -> Any:
    """The value after its JSON text."""
    return decode_value(json.loads(json.dumps(encode_value(value), allow_nan=False)))


def same(a: Any, b: Any) -> bool:
    """Equality of value and type all the way down, with NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) and (a == b or a != a)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_keeps_its_type(value: Any) -> None:
    assert same(through_json(value), value)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.lists(inner).map(tuple), max_leaves=10)


@given(values)
def test_nested_values_keep_their_types(value: Any) -> None:
    assert same(through_json(value), value)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1,) * 33], ids=str)
def test_constants_of_every_dtype_come_back_bit_for_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    array = np.random.default_rng(0).integers(0, 2, size * dtype.itemsize, np.uint8).view(dtype).reshape(shape)
    b = GraphBuilder()
    (value,) = from_json(to_json(b.build(b.constant(array)))).constants.values()
    assert (value.dtype, value.shape, value.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">c16", ">u2"])
def test_big_endian_arrays_are_stored_as_the_same_numbers(dtype: str) -> None:
    array = np.array([1, 2, 258]).astype(dtype)
    assert encode_array(array) == encode_array(array.astype(array.dtype.newbyteorder("<")))
    np.testing.assert_array_equal(decode_array(encode_array(array)), array)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs with constants, aliases and shared values."""
    b = GraphBuilder(draw(st.text(max_size=3)))
    symbols = [
        b.input((4,), "float32", name=name) for name in draw(st.lists(st.text(max_size=3), min_size=1, max_size=3))
    ]
    symbols.append(b.constant(draw(st.lists(st.floats(width=32), min_size=4, max_size=4)), "float32"))
    for _ in range(draw(st.integers(0, 8))):
        x, y = draw(st.sampled_from(symbols)), draw(st.sampled_from(symbols))
        kind = draw(st.sampled_from(["neg", "add", "alias"]))
        if kind == "alias":
            cut, whole = draw(st.integers(0, 4)), b.tensor((4,), "float32")
            b.add("neg", b.alias(x, (0,), (cut,)), out=b.alias(whole, (0,), (cut,)))
            symbols.append(whole)
        else:
            symbols.append(b.add(kind, *((x, y) if kind == "add" else (x,))))
    return b.build(*draw(st.lists(st.sampled_from(symbols), max_size=3)))


@given(graphs())
def test_a_graph_comes_back_as_it_was(graph: Graph) -> None:
    text = to_json(graph)
    back = from_json(text)
    assert structurally_equal(graph, back) and structural_hash(graph) == structural_hash(back)
    assert to_json(back) == text
    assert str(back) == str(graph)


def test_names_sources_and_attributes_come_back(squares: Graph) -> None:
    attrs = {"order": (2, 0, 1), "sizes": np.arange(3), "reads": {squares.inputs[0]: 1}, "spec": TensorSpec((), "int8")}
    back = from_json(to_json(squares.update(attrs=attrs)))
    assert back.name == "squares" and back.inputs[0].name == "x"
    assert [node.source for node in back.nodes] == [node.source for node in squares.nodes]
    assert back.attrs["order"] == (2, 0, 1) and back.attrs["spec"] == TensorSpec((), "int8")
    assert back.attrs["sizes"].tolist() == [0, 1, 2] and back.attrs["sizes"].dtype == np.int64
    assert back.attrs["reads"] == {back.inputs[0]: 1}


def test_a_layout_comes_back_and_is_written_where_it_is_not_the_usual_one() -> None:
    b = GraphBuilder("packed")
    graph = b.build(b.add("pack", b.input(TensorSpec((64, 32), "float32")), layout="64x32:aB16b"))
    text = to_json(graph)
    assert from_json(text).outputs[0].spec == graph.outputs[0].spec
    assert json.loads(text) and text.count('"layout"') == 2  # of the node's parameter, and of the result's spec


def test_nested_and_shared_sub_graphs_come_back_nested_and_shared(squares: Graph, call: Command) -> None:
    def around(inner: Graph) -> Graph:
        b = GraphBuilder("around")
        x, y = b.input((2, 3), "float32"), b.input((2, 3), "float32")
        (once,) = b.add(call, x, y, graphs=(inner,))
        return b.build(*b.add(call, once, y, graphs=(inner,)))

    graph = squares
    for _ in range(40):  # 2^40 graphs if sharing were lost
        graph = around(graph)
    text = to_json(graph)
    back = from_json(text)
    assert len(json.loads(text)["graphs"]) == 41
    assert back.nodes[0].graphs[0] is back.nodes[1].graphs[0]
    assert to_json(back) == text


@pytest.mark.slow
def test_a_node_that_reads_seventy_thousand_others_comes_back(gather_all: Command) -> None:
    b = GraphBuilder()
    x = b.input((1,) * 33, "float32")
    graph = b.build(b.add(gather_all, *[b.add("neg", x) for _ in range(70_000)]))
    assert structural_hash(from_json(to_json(graph))) == structural_hash(graph)


def test_parameters_and_attributes_without_a_json_form_are_named(
    new_command: Callable[..., Command], squares: Graph
) -> None:
    new = new_command("test_callback", Rules(infer=lambda x, *, function: x))
    b = GraphBuilder()
    graph = b.build(b.add(new, b.input((), "int8"), function=print))
    with pytest.raises(GraphError, match="parameter 'function' of a test_callback node cannot be stored"):
        to_json(graph)
    with pytest.raises(GraphError, match="attribute 'owner' of graph 'squares' cannot be stored"):
        to_json(squares.with_attrs(owner=object()))


def test_dataclasses_can_be_made_storable(own_registries: None) -> None:
    @storable
    @dataclass(frozen=True)
    class Window:
        size: tuple[int, ...]
        dtype: Any

    assert through_json((Window((2, 2), np.dtype("int8")),)) == (Window((2, 2), np.dtype("int8")),)
    with pytest.raises(RegistryError, match="has the name of a storable class"):
        storable(Window)
    with pytest.raises(RegistryError, match="is no dataclass"):
        storable(type("Plain", (), {}))


def test_read_only_mappings_are_stored_as_dictionaries() -> None:
    assert through_json(MappingProxyType({"a": (1,)})) == {"a": (1,)}


def test_a_graph_of_an_unregistered_command_names_it(squares: Graph) -> None:
    with pytest.raises(RegistryError, match="no command 'ad' is registered"):
        from_json(to_json(squares).replace('"add"', '"ad"'))


def test_unknown_versions_and_other_formats_are_refused(squares: Graph) -> None:
    text = to_json(squares)
    with pytest.raises(GraphError, match="version 2 of the format is unknown; this nnc reads version 1"):
        from_json(text.replace('"version":1', '"version":2'))
    for other in ('{"format": "onnx"}', "[]", "3"):
        with pytest.raises(GraphError, match="its format is not 'nnc.graph'"):
            from_json(other)
    for broken in ("", text[: len(text) // 2], "[" * 100_000, b"\xff\xfe"):
        with pytest.raises(GraphError, match="the text is no JSON"):
            from_json(broken)


@pytest.mark.parametrize("text", [None, 3, 2.5, [], {}, object()])
def test_values_that_are_no_text_are_refused(text: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"from_json: text is (?s:.)*Fix: pass a text that to_json wrote"):
        from_json(text)


def test_a_changed_spec_is_noticed(squares: Graph) -> None:
    with pytest.raises(GraphError):
        from_json(to_json(squares).replace('"shape":[2,3],"dtype":"float32"', '"shape":[3,2],"dtype":"float32"', 1))


def paths(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [prefix, *(path for key, value in items for path in paths(value, (*prefix, key)))]


@given(st.data())
def test_damage_anywhere_is_a_graph_error_or_harmless(data: st.DataObject) -> None:
    b = GraphBuilder()
    x = b.input((4,), "float32")
    part = b.add("slice", x, start=(1,), limit=(3,), stride=(1,))
    document = json.loads(
        to_json(b.build(b.add("add", part, b.constant([1, 2], "float32")), attrs={"order": (1, 2.5)}))
    )
    path = data.draw(st.sampled_from(paths(document)[1:]))
    owner = document
    for key in path[:-1]:
        owner = owner[key]
    if data.draw(st.booleans()):
        del owner[path[-1]]
    else:
        owner[path[-1]] = data.draw(st.sampled_from([None, -7, 10**9, 0.5, "x", [], {}, {"a": 1}, [[1]], True]))
    with contextlib.suppress(GraphError, RegistryError):
        from_json(json.dumps(document))


def test_graphs_are_saved_to_files_and_loaded(squares: Graph, tmp_path: Path) -> None:
    save_graph(tmp_path / "graph.json", squares)
    assert structurally_equal(load_graph(tmp_path / "graph.json"), squares)


def test_a_value_of_an_unknown_tag_is_refused() -> None:
    with pytest.raises(KeyError, match="odd"):
        decode_value({"odd": [1]})


def test_commands_stand_in_parameters_by_name() -> None:
    assert through_json(command("add")) is command("add")
