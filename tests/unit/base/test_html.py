"""HTML for notebooks: text is escaped, and pictures of arrays have the colours of their elements."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.html import draw, show_text


def picture(html: str) -> np.ndarray[Any, Any]:
    """The pixels of the picture in some HTML, read by another library."""
    image = pytest.importorskip("PIL.Image")
    found = re.search(r'src="data:image/png;base64,([^"]+)"', html)
    assert found is not None
    return np.asarray(image.open(io.BytesIO(base64.b64decode(found[1]))))


class Checker(HTMLParser):
    """Collects tags that are open, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return checker.text


def test_positive_elements_are_red_negative_ones_blue_and_nan_grey() -> None:
    pixels = picture(nnp.asarray([[1.0, -1.0, 0.0], [np.nan, 0.5, np.inf]])._repr_html_())
    assert pixels.shape == (2, 3, 3)
    red, blue, white, grey = pixels[0, 0], pixels[0, 1], pixels[0, 2], pixels[1, 0]
    assert red[0] > red[2] and blue[2] > blue[0] and white.min() > 240 and len(set(grey.tolist())) == 1
    assert np.array_equal(pixels[1, 2], red)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "uint64"])
def test_large_arrays_are_sampled(dtype: str) -> None:
    x = nnp.ones((3, 200, 300), dtype)
    assert picture(x._repr_html_()).shape == (64, 64, 3)
    assert picture(nnp.ones(500, dtype)._repr_html_()).shape == (1, 64, 3)


def test_few_or_complex_elements_have_no_picture() -> None:
    for x in (nnp.ones(()), nnp.ones(3), nnp.zeros((0, 5)), nnp.ones((4, 4), "complex64")):
        assert "<img" not in x._repr_html_() and read(x._repr_html_())
    assert draw(np.zeros((4, 4))) is not None


def test_the_title_of_an_array_names_its_device_and_donation() -> None:
    assert read(nnc.device_put(np.ones((2, 2)), "sim:0")._repr_html_()).startswith("float64[2,2] on sim:0")
    x = nnp.ones((2, 2))
    x.delete()
    assert "donated" in x._repr_html_()


def test_programs_are_shown_as_their_text() -> None:
    f = nnc.compile(lambda x: nnp.sum(nnp.where(x < 1, x, 2 * x)))
    lowered = f.lower(nnp.ones((3, 4)))
    executable = lowered.compile()
    model = nnc.nn.MLP(4, 2, width=8, depth=1, key=nnc.random.key(0))
    summary = nnc.nn.summary(model, nnp.ones((3, 4)))
    plans = (executable.memory_plan, executable.schedule, executable.cost, summary)
    for shown in (lowered, lowered.graph, executable, *plans):
        assert read(shown._repr_html_()).endswith(str(shown))
    assert str(lowered) == lowered.as_text() and str(executable) == executable.as_text()
    assert repr(lowered).startswith("<Lowered for cpu: <Graph <lambda>: 1 inputs")
    assert repr(executable).startswith("<Executable for cpu: <Graph <lambda>: 1 inputs")


def test_models_are_trees_with_the_numbers_of_their_parameters() -> None:
    class Model(nnc.nn.Module):
        parts: dict[str, Any]
        norm: nnc.nn.BatchNorm
        name: str = "<b>"

    keys = nnc.random.split(nnc.random.key(0))
    model = Model({"a": [nnc.nn.Linear(2, 3, key=k) for k in keys], "none": None}, nnc.nn.BatchNorm(4))
    html = model._repr_html_()
    count = sum(x.size for x in nnc.nn.parameters(model).values())
    text = read(html)
    assert text.startswith(
        f"Model, {count} parametersparts: dict of 2, 18 parametersa: list of 2, 18 parameters0: Linear, 9 parameters"
    )
    assert "norm: BatchNorm, 8 parametersscale: float32[4]" in text and "mean: float32[4], state" in text
    assert "name: '<b>'" in text and html.count("<details") == 6 and html.count(" open>") == 1
    assert read(nnc.eval_shape(lambda: model)._repr_html_()) == text


def test_text_is_escaped() -> None:
    assert read(show_text("<b>", "a & <script>")) == "<b>a & <script>"
