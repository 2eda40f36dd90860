from __future__ import annotations

import pytest

pytest.importorskip("onnx")
from tests.unit.onnx import page


def test_the_page_lists_the_operators_that_there_are() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.page(text)  # python -m tests.unit.onnx.page renews it
