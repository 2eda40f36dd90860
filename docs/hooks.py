"""Hooks of MkDocs: pages that are made rather than written, and links that lead out of the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # MkDocs may be started as a script, which leaves the working directory out

from docs.links import COPIES, for_site, in_notebook  # noqa: E402  (behind the path)
from docs.reference import menu, pages  # noqa: E402

EXAMPLE = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the menu of the reference."""
    for entry in config.nav or []:
        if "Reference" in entry:
            entry["Reference"] = menu()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference, and copies of files from elsewhere in the repository."""
    made = pages() | {page: (ROOT / file).read_text(encoding="utf-8") for page, file in COPIES.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Mends links, and names the lexer of examples with prompts."""
    return EXAMPLE.sub("```pycon\n", for_site(markdown, page.file.src_uri))


def on_page_content(html: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Mends links of notebooks."""
    return in_notebook(html, page.file.src_uri) if page.file.src_uri.endswith(".ipynb") else html
