from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from typing import Any

import pytest

import nnc
from nnc.errors import ArgumentError, ArgumentTypeError


@pytest.mark.parametrize("style", ["tqdm", "rich", "plain"])
def test_every_style_counts_to_the_end_and_shows_the_last_values(style: Any) -> None:
    if style != "plain":
        pytest.importorskip(style)
    out = io.StringIO()
    with nnc.debug.progress(total=4, description="first", style=style, unit="images", file=out) as bar:
        bar.update(2, loss=0.5)
        bar.describe("second")
        bar.update(2, loss=0.25, epoch=3, tiny=1e-7, name="x")
    text = out.getvalue()
    assert "second" in text and "4/4" in text and "images" in text
    assert style == "rich" or "loss=0.2500, epoch=3, tiny=1e-07, name=x" in text  # rich cuts to its width


def test_an_iterable_passes_unchanged_and_gives_the_total() -> None:
    out = io.StringIO()
    assert list(nnc.debug.progress([1, 2, 3], style="plain", file=out)) == [1, 2, 3]
    assert "3/3 (100%) steps" in out.getvalue()
    out = io.StringIO()
    assert list(nnc.debug.progress((c for c in "ab"), style="plain", file=out)) == ["a", "b"]
    assert out.getvalue().startswith("2 steps")


def test_a_loop_that_fails_still_ends_the_bar() -> None:
    out = io.StringIO()
    with contextlib.suppress(KeyError), nnc.debug.progress(total=3, style="plain", file=out) as bar:
        bar.update()
        raise KeyError
    assert "1/3 (33%)" in out.getvalue()


def test_without_libraries_there_is_plain_text() -> None:
    program = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in ('tqdm', 'rich') else find(name, *rest)\n"
        "import nnc\n"
        "assert 'tqdm' not in sys.modules and 'rich' not in sys.modules\n"
        "for i in nnc.debug.progress(range(5), description='reading'): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "" and done.stderr.startswith("reading: 5/5 (100%) steps")


def test_a_stream_that_is_no_terminal_gets_few_lines() -> None:
    out = io.StringIO()
    for _ in nnc.debug.progress(range(5000), file=out):
        pass
    assert out.getvalue().count("\n") + out.getvalue().count("\r") <= 12


def test_a_terminal_gets_a_bar() -> None:
    pytest.importorskip("tqdm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with nnc.debug.progress(total=4, file=out) as bar:
        bar.update(4)
    assert "100%|" in out.getvalue()


def test_without_a_total_lines_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with nnc.debug.progress(style="plain", file=out) as bar:
        for _ in range(100_000):
            now[0] += 0.1
            bar.update()
    assert 20 < out.getvalue().count("\n") < 100


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="style is 'fancy'.*plain"):
        nnc.debug.progress(total=1, style="fancy")
    with pytest.raises(ArgumentTypeError, match="write description="):
        nnc.debug.progress(total=1, desc="x")
