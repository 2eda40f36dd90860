from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError
from nnc.view import Picture
from nnc.view.svg import Scale, element, shorten


@pytest.fixture
def picture() -> Picture:
    return nnc.view(lambda x: nnp.sin(x) * x, nnp.ones(3))


def test_pictures_are_saved_in_the_form_of_the_suffix(picture: Picture, tmp_path: Path) -> None:
    for name, text in (("a.svg", picture.svg), ("a.html", picture.html), ("A.HTM", picture.html)):
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
        ElementTree.parse(tmp_path / name)


@pytest.mark.parametrize("name", ["plan.png", "plan", ""])
def test_a_suffix_that_names_no_form_is_refused(picture: Picture, name: str) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)Picture\.save: path is .*Fix: end the name in \.svg"):
        picture.save(name)


def test_pages_need_nothing_from_elsewhere(picture: Picture) -> None:
    page = picture.html.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xhtml", "")
    assert not any(word in page for word in ("http:", "https:", "//cdn", "src=", "import ", "@import", "url("))


def test_notebooks_get_the_page_in_a_frame_of_its_own(picture: Picture) -> None:
    found: list[tuple[str, dict[str, str | None]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))  # type: ignore[method-assign]
    parser.feed(picture._repr_html_())
    ((tag, attributes),) = found
    assert (tag, attributes["srcdoc"], attributes["sandbox"]) == ("iframe", picture.html, "allow-scripts")
    assert picture._repr_svg_() == picture.svg


def test_a_page_with_braces_in_its_name_is_filled_in_once() -> None:
    page = Picture("{{svg}}", "<svg/>").html
    assert page.count("<svg/>") == 1 and page.count("{{svg}}") == 2


def test_texts_and_attributes_of_elements_are_escaped() -> None:
    made = ElementTree.fromstring(element("g", element("title", "&lt;b&gt;"), cls="<\"'&\x00", x=0.125))
    assert made.attrib == {"class": "<\"'&\ufffd", "x": "0.12"}
    assert made.findtext("title") == "<b>"


def test_texts_are_cut_to_the_room_that_they_have() -> None:
    assert shorten("float32[2]", 66.0, 11) == "float32[2]"
    assert shorten("float32[2]", 65.0, 11) == "float32[…"
    assert shorten("float32[2]", 15.0, 11) == ""


def test_scales_have_round_marks() -> None:
    assert Scale(100, 0, 10).marks(5) == [0, 20, 40, 60, 80, 100]
    assert Scale(3000, 0, 10).marks(4, base=2) == [0, 1024, 2048]
    assert Scale(1, 5, 15)(0.5) == 10
