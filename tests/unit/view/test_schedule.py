from __future__ import annotations

from xml.etree import ElementTree

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError
from nnc.lower.plan.schedule.report import ScheduleReport, ScheduleRow

SVG = "{http://www.w3.org/2000/svg}"


def test_each_step_is_a_rectangle_at_its_time_in_the_band_of_its_stream() -> None:
    rows = (
        ScheduleRow(0, 0, "dot", "numpy", "float32[2]", 0.0, 100.0, (), None),
        ScheduleRow(1, 1, "sin", "numpy", "float32[2]", 25.0, 50.0, (), None),
        ScheduleRow(2, 1, "add", "numpy", "float32[2]", 150.0, 50.0, (0,), None),
    )
    root = ElementTree.fromstring(nnc.view.schedule(ScheduleReport("<f>", 2, False, rows)).svg)
    shapes = [{name: float(shape.attrib[name]) for name in ("x", "y", "width")} for shape in root.iter(f"{SVG}rect")]
    assert [(shape["x"], shape["width"]) for shape in shapes] == [(80, 600), (230, 300), (980, 300)]
    assert shapes[0]["y"] < shapes[1]["y"] == shapes[2]["y"]
    waits = [line for line in root.iter(f"{SVG}line") if line.get("class") == "wait"]
    assert [(float(line.attrib["x1"]), float(line.attrib["x2"])) for line in waits] == [(680, 980)]
    assert "waits for steps 0" in (root.findall(f"{SVG}g")[2].findtext(f"{SVG}title") or "")


def test_programs_and_measured_runs_are_drawn() -> None:
    f = nnc.compile(lambda x: nnp.sin(x) @ x)
    lowered = f.lower(nnp.ones((3, 3)))
    program = lowered.compile()
    assert nnc.view.schedule(program).svg == nnc.view.schedule(lowered).svg == nnc.view.schedule(program.schedule).svg
    run = nnc.debug.profile(f, nnp.ones((3, 3)))
    assert nnc.view.schedule(run).name == "measured run of <lambda>"
    assert nnc.view.schedule(run).svg.count("<rect") == 2
    ElementTree.fromstring(nnc.view.schedule(nnc.compile(lambda x: x).lower(1.0)).html)
    with pytest.raises(ArgumentTypeError, match=r"nnc\.view\.schedule: 3 has no schedule"):
        nnc.view.schedule(3)
