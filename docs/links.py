"""Links that are right in the repository, as they must be written on the site."""

from __future__ import annotations

import posixpath
import re

COPIES = {  # files of the repository that are pages of the site, too
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "measurements.md": "benchmarks/RESULTS.md",
}
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
HREF = re.compile(r'href="([^":#]+)\.(?:md|ipynb)(#[^"]*)?"')
_PAGES = {file: page for page, file in COPIES.items()}


def for_site(markdown: str, page: str) -> str:
    """The Markdown of a page, with links for its place on the site."""
    return LINK.sub(lambda link: _link(link, page), markdown)


def _link(link: re.Match[str], page: str) -> str:
    """The Markdown of a link. Files without a page on the site are named, since there is nothing to link."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    source = COPIES.get(page, f"docs/{page}")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if file not in _PAGES and not file.startswith("docs/"):
        return text if file in text else f"{text} (`{file}`)"
    there = _PAGES.get(file, file.removeprefix("docs/"))
    return f"[{text}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor})"


def in_notebook(html: str, page: str) -> str:
    """The HTML of a notebook, whose links MkDocs leaves as they are, with links to pages of the site."""

    def address(link: re.Match[str]) -> str:
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))
        return f'href="{posixpath.relpath(there, posixpath.splitext(page)[0])}/{link[2] or ""}"'

    return HREF.sub(address, html)
