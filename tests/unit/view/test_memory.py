from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import nnc
import nnc.numpy as nnp
from nnc.compiled.executable import Executable
from nnc.errors import ArgumentTypeError
from nnc.view.memory import bottoms, live_bytes

SVG = "{http://www.w3.org/2000/svg}"


def loss(w: nnc.Array, x: nnc.Array) -> nnc.Array:
    for _ in range(3):
        x = nnp.tanh(x @ w)
    return nnp.sum(nnc.scan(lambda c, y: (c * y, c + y), x[0], x)[1] * 2)


@pytest.fixture(scope="module")
def program() -> Executable:
    executable: Executable = nnc.compile(nnc.grad(loss)).lower(nnp.ones((16, 16)), nnp.ones((8, 16))).compile()
    return executable


def test_each_row_of_the_plan_is_a_rectangle_at_its_steps_and_bytes(program: Executable) -> None:
    plan = program.memory_plan
    root = ElementTree.fromstring(nnc.view.memory(program).svg)
    items = [g for g in root.iter(f"{SVG}g") if "item" in g.attrib["class"]]
    assert len(items) == len(plan.rows) > 10
    steps = 1 + max(row.last for row in plan.rows)
    above = sum(row.size for row in plan.rows if row.offset is None)
    for item, row, bottom in zip(items, plan.rows, bottoms(plan.rows), strict=True):
        shape = item.find(f"{SVG}rect")
        assert shape is not None
        x, y, width, height = (float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x == pytest.approx(80 + 1200 * row.first / steps, abs=0.02)
        assert width == pytest.approx(1200 * (row.last + 1 - row.first) / steps, abs=0.02)
        base, room, total = (
            (56 + 130, 130, above) if row.offset is None else (56 + 130 + 30 + 480, 480, plan.arena_bytes)
        )
        assert base - y - height == pytest.approx(room * bottom / total, abs=0.03)
        assert height == pytest.approx(room * row.size / total, abs=0.02)
        about = item.findtext(f"{SVG}title") or ""
        assert all(
            part in about for part in (row.name, str(row.spec), f"{row.size} bytes", f"steps {row.first} to {row.last}")
        )
        assert row.source is None or str(row.source) in about


def test_rows_outside_of_the_arena_stand_one_above_the_other(program: Executable) -> None:
    rows = [row for row in program.memory_plan.rows if row.offset is None]
    places = bottoms(rows)
    assert [b - a for a, b in pairwise(places)] == [row.size for row in rows[:-1]]


def test_the_line_of_live_bytes_is_their_sum_at_each_step(program: Executable) -> None:
    rows = [row for row in program.memory_plan.rows if row.offset is not None]
    live = live_bytes(program.memory_plan.rows, 1 + max(row.last for row in rows))
    assert live == [sum(row.size for row in rows if row.first <= step <= row.last) for step in range(len(live))]
    assert max(live) <= program.memory_plan.arena_bytes


def test_plans_without_an_arena_or_without_rows_are_drawn() -> None:
    program = nnc.compile(lambda x: x + 1).lower(nnp.ones(3)).compile()
    assert program.memory_plan.arena_bytes == 0
    assert nnc.view.memory(program).svg.count("<rect") == len(program.memory_plan.rows)
    ElementTree.fromstring(nnc.view.memory(replace(program.memory_plan, rows=())).svg)


def test_a_lowered_function_and_a_plan_are_drawn_as_the_program_is(program: Executable) -> None:
    lowered = nnc.compile(nnc.grad(loss)).lower(nnp.ones((16, 16)), nnp.ones((8, 16)))
    assert nnc.view.memory(lowered).svg == nnc.view.memory(program).svg
    unnamed = re.sub("memory plan of loss", "memory plan", nnc.view.memory(program).svg)
    assert nnc.view.memory(program.memory_plan).svg == unnamed
    with pytest.raises(ArgumentTypeError, match=r"nnc\.view\.memory: 3 has no memory plan"):
        nnc.view.memory(3)
