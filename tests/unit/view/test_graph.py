from __future__ import annotations

import json
import random
import time
from xml.etree import ElementTree

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError
from nnc.graph import Graph, GraphBuilder
from nnc.view import Picture

SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture: Picture) -> list[ElementTree.Element]:
    return [g for g in ElementTree.fromstring(picture.svg).iter(f"{SVG}g") if "item" in g.get("class", "")]


def kinds(picture: Picture) -> list[str]:
    return [box.attrib["class"].split()[-1] for box in boxes(picture)]


def abouts(picture: Picture) -> list[str]:
    return [box.findtext(f"{SVG}title") or "" for box in boxes(picture)]


def test_there_is_a_box_for_each_node_input_constant_and_output_with_its_line() -> None:
    graph = nnc.make_graph(lambda x, w: nnp.reshape(nnp.tanh(x @ w) * 2, (-1,)))(nnp.ones((4, 32)), nnp.ones((32, 4)))
    picture = nnc.view(graph)
    assert kinds(picture) == ["input", "input", "heavy", "plain", "constant", "alias", "plain", "alias", "output"]
    about = abouts(picture)
    assert about[0] == "input %0: float32[4,32]"
    assert about[2].startswith("%3: float32[4,4] = dot(%0, %1)  {contract=((1,), (0,))")
    assert "test_graph.py" in about[2] and "nnp.tanh(x @ w)" in about[2]
    assert "= 2.0" in about[4]


def test_wires_join_producers_with_consumers() -> None:
    picture = nnc.view(lambda x, y: nnp.sin(x) + nnp.sin(x) * y, nnp.ones(3), nnp.ones(3))
    lines = (about.partition("\n")[0].split(" = ")[-1] for about in abouts(picture))
    name = {box.attrib["data-key"]: line for box, line in zip(boxes(picture), lines, strict=True)}
    wires = ElementTree.fromstring(picture.svg).iter(f"{SVG}path")
    assert sorted((name[wire.attrib["data-from"]], name[wire.attrib["data-to"]]) for wire in wires) == [
        ("add(%2, %4)", "output %5: float32[3]"),
        ("input %0: float32[3]", "sin(%0)"),
        ("input %0: float32[3]", "sin(%0)"),
        ("input %1: float32[3]", "mul(%3, %1)"),
        ("mul(%3, %1)", "add(%2, %4)"),
        ("sin(%0)", "add(%2, %4)"),
        ("sin(%0)", "mul(%3, %1)"),
    ]


def test_a_small_constant_stands_at_each_of_its_readers_a_large_one_once() -> None:
    b = GraphBuilder("constants")
    x, small, large = b.input((9,), "float32"), b.constant(np.float32(0.1)), b.constant(np.ones(9, np.float32))
    scaled = b.add("mul", b.add("broadcast_to", small, shape=(9,)), b.add("mul", x, large))
    graph = b.build(b.add("add", b.add("mul", scaled, large), b.add("broadcast_to", small, shape=(9,))))
    picture = nnc.view(graph)
    assert kinds(picture).count("constant") == 3
    assert picture.svg.count(">0.1</text>") == 2


def test_sub_graphs_lie_inside_the_box_of_their_node() -> None:
    def f(x: nnc.Array) -> nnc.Array:
        return nnc.scan(lambda c, y: (nnc.cond(y > 0, nnp.sin, nnp.cos, c), c), 0.0, x)[0]

    picture = nnc.view(f, nnp.ones(3))
    root = ElementTree.fromstring(picture.svg)
    (scan,) = [g for g in root.findall(f"./{SVG}g/{SVG}g") if "owner" in g.attrib["class"]]
    (case,) = [g for g in scan.findall(f"./{SVG}g/{SVG}g") if "owner" in g.attrib["class"]]
    branches = case.findall(f"./{SVG}g")
    commands = [{text.text for text in branch.iter(f"{SVG}text") if text.get("class") == "name"} for branch in branches]
    assert sorted(commands, key=str) == [{"cos"}, {"sin"}]
    for owner in (scan, case):
        assert float(owner.attrib["data-header"]) < float(owner.attrib["data-height"])
        for drawing in owner.findall(f"./{SVG}g"):
            rows = json.loads(drawing.attrib["data-rows"])
            bottom = rows[-1][0] + rows[-1][1]
            assert bottom == pytest.approx(float(drawing.attrib["data-height"]), abs=0.02)
            assert bottom + float(owner.attrib["data-header"]) <= float(owner.attrib["data-height"])


def test_names_and_lines_of_users_cannot_break_out_of_the_text() -> None:
    evil = "\"'></title></text><script>alert(1)</script>\x00\ud800&amp;"
    b = GraphBuilder(evil)
    x = b.input((2,), "float32", name=evil)
    picture = nnc.view(b.build(b.add("sin", x)))
    root = ElementTree.fromstring(picture.svg)
    assert not list(root.iter(f"{SVG}script"))
    assert abouts(picture)[0] == "input %0 \"'></title></text><script>alert(1)</script>\ufffd\ufffd&amp;: float32[2]"
    page = ElementTree.fromstring(picture.html)
    assert len(list(page.iter("{http://www.w3.org/1999/xhtml}script"))) == 1
    assert picture.html.count("<script>") == 1
    picture.html.encode("utf-8")


def random_graph(nodes: int) -> Graph:
    draw = random.Random(0)
    b = GraphBuilder("large")
    symbols = [b.input((8, 8), "float32") for _ in range(20)]
    for _ in range(nodes):
        near = symbols[-12:] if draw.random() < 0.9 else symbols
        symbols.append(b.add(draw.choice(["add", "mul", "sub"]), draw.choice(near), draw.choice(near)))
    return b.build(*symbols[-5:])


def test_two_thousand_nodes_are_drawn_in_less_than_two_seconds() -> None:
    graph = random_graph(2000)
    start = time.process_time()
    picture = nnc.view(graph)
    text = picture.html
    assert time.process_time() - start < 2
    assert text.count('class="item box') == 2025


def test_programs_and_functions_are_drawn_by_their_graph() -> None:
    compiled = nnc.compile(lambda x: nnp.sin(x) + 1)
    lowered = compiled.lower(nnp.ones(2))
    assert nnc.view(lowered).svg == nnc.view(lowered.graph).svg == nnc.view(compiled, nnp.ones(2)).svg
    assert nnc.view(lowered.compile()).svg == nnc.view(lowered.compile().graph).svg
    for wrong in (3, compiled, nnp.sin):
        with pytest.raises(ArgumentTypeError, match=r"nnc\.view: .* is no graph"):
            nnc.view(wrong)


def test_a_symbol_that_nothing_writes_is_shown_as_such() -> None:
    b = GraphBuilder("broken")
    x = b.input((2,), "float32")
    graph = b.build(b.add("sin", b.add("cos", x)))
    broken = graph.update(nodes=graph.nodes[1:])
    assert kinds(nnc.view(broken)) == ["input", "undefined", "plain", "output"]


def test_graphs_without_nodes_and_without_anything_are_drawn() -> None:
    b = GraphBuilder("identity")
    assert kinds(nnc.view(b.build(b.input((), "float32")))) == ["input", "output"]
    ElementTree.fromstring(nnc.view(GraphBuilder("nothing").build()).html)
