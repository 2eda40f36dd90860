"""Graphs as pictures: a box for each node, inputs and outputs beside the nodes that use them, sub-graphs inside their node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nnc.commands.properties import flops_of, moves_elements
from nnc.graph import Graph, Node, Symbol, node_texts, symbol_numbers, value_text
from nnc.graph.registry import effect
from nnc.view.layout import Layout, Wire, lay_out
from nnc.view.picture import Picture, asset
from nnc.view.svg import CHARACTER, document, element, label, number, shorten, title

_FONT, _PAD, _MARGIN = 11, 8.0, 16.0
_HEIGHT, _CHIP = 36.0, 20.0  # of a node, of an input or output
_WIDEST = 240.0
_SMALL = 8  # elements of a constant that stands at each of its readers
_BUSY = 16  # operations for each element of the results, from which a node counts as heavy


@dataclass(frozen=True, slots=True)
class _Box:
    """A box before it has a place."""

    kind: str
    name: str
    spec: str
    about: str
    reads: tuple[int, ...]
    width: float
    height: float
    drawings: tuple[tuple[str, float, float], ...] = ()  # (SVG, width, height) of sub-graphs


class _Draw:
    """Draws one graph with all its sub-graphs."""

    def __init__(self, graph: Graph) -> None:
        self.numbers: Mapping[Symbol, int] = symbol_numbers(graph)
        self.texts: Mapping[Node, str] = node_texts(graph)
        self.boxes = 0  # so far, to give each its key
        self.start = "0 0"

    def drawing(self, graph: Graph) -> tuple[str, float, float]:
        """(SVG, width, height) of a graph."""
        boxes, given = self._boxes(graph)
        sizes = [(box.width, box.height) for box in boxes]
        light = set(given)
        for i, box in enumerate(boxes):
            if all(j in light and boxes[j].kind != "input" for j in box.reads):  # it depends on constants alone
                light.add(i)
        layout = lay_out(sizes, [box.reads for box in boxes], given, light, _CHIP)
        first = self.boxes
        self.boxes += len(boxes)
        parts = [_wire(wire, first) for wire in layout.wires]
        parts += [self._box(box, layout, i, first + i) for i, box in enumerate(boxes)]
        if boxes:
            top = min(set(range(len(boxes))) - set(given), key=lambda i: (layout.row_of[i], i), default=0)
            self.start = f"{number(layout.corners[top][0])} {number(layout.corners[top][1])}"
        rows = json.dumps([[round(y, 2), round(height, 2)] for y, height in layout.rows], separators=(",", ":"))
        svg = "".join(parts)
        return (
            f'<g class="drawing" data-height="{number(layout.height)}" data-rows="{rows}">{svg}</g>',
            layout.width,
            layout.height,
        )

    def _boxes(self, graph: Graph) -> tuple[list[_Box], list[int]]:
        """Makes the boxes in an order in which each stands behind its operands, and the numbers of inputs' and constants' boxes.

        A small constant has a box at each of its readers, instead of wires all over the drawing.
        """
        boxes: list[_Box] = []
        made: dict[Symbol, int] = {}
        given: list[int] = []

        def add_given(box: _Box) -> int:
            given.append(len(boxes))
            boxes.append(box)
            return given[-1]

        def read(symbol: Symbol) -> int:
            if symbol not in made and symbol not in graph.constants:  # only where the graph breaks its invariants
                made[symbol] = add_given(self._chip("undefined", symbol, ()))
            if symbol not in made:
                value = graph.constants[symbol]
                box = add_given(self._chip("constant", symbol, (), value_text(value) if value.ndim else str(value[()])))
                if value.size > _SMALL:
                    made[symbol] = box
                return box
            return made[symbol]

        for symbol in graph.inputs:
            made[symbol] = add_given(self._chip("input", symbol, ()))
        for node in graph.nodes:
            box = self._node(node, tuple(map(read, node.inputs)))
            made.update(dict.fromkeys(node.outputs, len(boxes)))
            boxes.append(box)
        boxes += [self._chip("output", symbol, (read(symbol),)) for symbol in graph.outputs]
        return boxes, given

    def _chip(self, kind: str, symbol: Symbol, reads: tuple[int, ...], value: str = "") -> _Box:
        name = f"%{self.numbers[symbol]} {symbol.name}".rstrip()
        about = f"{kind} {name}: {symbol.spec}" + (f" = {value}" if value else "")
        text = value if value and not symbol.shape else f"{name}: {symbol.spec}"
        return _Box(kind, text, "", about, reads, _width(text), _CHIP)

    def _node(self, node: Node, reads: tuple[int, ...]) -> _Box:
        specs = ", ".join(str(symbol.spec) for symbol in node.outputs)
        about = self.texts[node]
        if node.source is not None:
            about += f"\nat {node.source.describe()}"
        width, height = _width(node.command.name, specs), _HEIGHT
        drawings = tuple(self.drawing(graph) for graph in node.graphs)
        if drawings:
            width = max(width, sum(w for _, w, _ in drawings) + _PAD * (len(drawings) + 1))
            height += max(h for _, _, h in drawings) + _PAD
        return _Box(_kind(node), node.command.name, specs, about, reads, width, height, drawings)

    def _box(self, box: _Box, layout: Layout, i: int, key: int) -> str:
        x, y = layout.corners[i]
        inside = [
            title(box.about),
            element("rect", width=box.width, height=box.height, rx=4 if box.kind != "input" else 10),
        ]
        room = box.width - _PAD
        fold = 2 * _PAD if box.drawings else 0.0
        first = shorten(box.name, room - fold, _FONT)
        inside.append(label(first, _PAD / 2 + fold, 14.0, cls="name" if box.spec else None))
        if box.spec:
            inside.append(label(shorten(box.spec, room, _FONT), _PAD / 2, 29.0, cls="spec"))
        if box.drawings:
            inside.append(label("▾", _PAD / 2, 14.0, cls="fold"))
        left = _PAD
        for svg, width, _ in box.drawings:
            inside.append(svg.replace("<g ", f'<g transform="translate({number(left)} {number(_HEIGHT)})" ', 1))
            left += width + _PAD
        return element(
            "g",
            inside,
            cls=f"item box {box.kind}",
            transform=f"translate({number(x)} {number(y)})",
            data_x=x,
            data_y=y,
            data_key=key,
            data_row=layout.row_of[i],
            data_height=box.height,
            data_header=_HEIGHT if box.drawings else None,
        )


def draw_graph(graph: Graph) -> Picture:
    """Returns the picture of a graph."""
    draw = _Draw(graph)
    svg, width, height = draw.drawing(graph)
    text = document(
        (svg,), width, height, asset("graph.css"), f"graph {graph.name}", margin=_MARGIN, data_start=draw.start
    )
    return Picture(f"graph {graph.name}", text)


def _width(*lines: str) -> float:
    """Returns the room that the longest of these lines takes in a box, up to `_WIDEST`."""
    return min(max(map(len, lines)) * CHARACTER * _FONT + _PAD, _WIDEST)


def _kind(node: Node) -> str:
    """Returns the kind that a node's colour shows: it owns sub-graphs, has an effect, is a view, computes much for each element, or
    little.
    """
    if node.graphs:
        return "owner"
    if node.command in effect:
        return "effect"
    if moves_elements(node.command):
        return "alias"
    flops = flops_of(node.command, [symbol.spec for symbol in node.inputs], node.params)
    return "heavy" if flops >= _BUSY * max(sum(symbol.spec.size for symbol in node.outputs), 1) else "plain"


def _wire(wire: Wire, first: int) -> str:
    points = [f"{number(x)} {number(y)}" for x, y in wire.points]
    path = "M" + "L".join(points) if wire.in_lane else f"M{points[0]}L{points[1]}{_curves(wire.points[1:])}"
    kind = "wire lane" if wire.in_lane else "wire"
    return element("path", d=path, cls=kind, data_from=first + wire.start, data_to=first + wire.end)


def _curves(points: Sequence[tuple[float, float]]) -> str:
    """From the bottom of a row to the top of the next, in turn with straight lines down through rows."""
    parts = []
    for i, ((x1, y1), (x2, y2)) in enumerate(pairwise(points)):
        middle = number((y1 + y2) / 2)
        end = f"{number(x2)} {number(y2)}"
        parts.append(f"L{end}" if i % 2 else f"C{number(x1)} {middle} {number(x2)} {middle} {end}")
    return "".join(parts)
