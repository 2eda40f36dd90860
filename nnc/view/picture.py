"""A finished picture: SVG, and a page that shows it with everything needed inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path

from nnc.errors import ArgumentError, user_error
from nnc.view.svg import clean

_HEIGHT = 560  # of the frame in a notebook, in pixels


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing. Notebooks show it; `save` writes it to a file.

    `svg` is a picture that every browser and editor shows, with a description of each shape as its tooltip. `html` is a page by
    itself, without network or libraries: the same drawing with zoom, search and sub-graphs that fold.

    Args:
        name: the shown object.
        svg: text of the drawing.

    Example:
        >>> nnc.view(make_graph(nnp.sin)(1.0)).svg[:4]
        '<svg'
    """

    name: str
    svg: str = field(repr=False)

    @property
    def html(self) -> str:
        """The page, as text."""
        parts = {"name": clean(self.name), "style": asset("page.css"), "script": asset("page.js"), "svg": self.svg}
        text = asset("page.html")
        head, *rest = text.split("{{")
        return head + "".join(parts[slot] + after for slot, after in (piece.split("}}", 1) for piece in rest))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the picture to `path`, whose suffix chooses the form: .svg or .html.

        Args:
            path: ends in .svg or .html.

        Raises:
            ArgumentError: it has another suffix.
        """
        target = Path(path)
        forms = {".svg": lambda: self.svg, ".html": lambda: self.html, ".htm": lambda: self.html}
        if target.suffix.lower() not in forms:
            problem = f"path is {str(path)!r}: its suffix names no form that pictures have."
            fix = "end the name in .svg, or in .html for a page with zoom and search."
            raise user_error(ArgumentError, "Picture.save", problem, fix=fix)
        target.write_text(forms[target.suffix.lower()](), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        """Returns the page in a frame of its own, so that neither its style nor its script meets the notebook's."""
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #ccc"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


@cache
def asset(name: str) -> str:
    """Returns a file of this package."""
    return files("nnc.view").joinpath(name).read_text(encoding="utf-8")
