"""How an error is held against the house form: class, operands, the user's own line, and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnc.base.source import is_ours
from nnc.errors import NncError

HERE = Path(__file__).parent


@contextmanager
def reports(kind: type[NncError], *words: str, at: str | None = None) -> Iterator[None]:
    """Expects the block to raise `kind` with a message that a newcomer can act on.

    The message must contain every one of `words` (operands, shapes, names), a line that starts with "Fix: ", and the place of
    the mistake: the line of the block that raised, or, with `at`, a line of the test file with that text (for mistakes that
    show only when a compiled function runs). Anything but an NncError (InternalError, AttributeError, assert) fails the test.
    """
    with pytest.raises(NncError) as caught:
        yield
    error, text = caught.value, str(caught.value)
    if user_line(error)[0] != "test_graphs.py":  # authors of commands and passes read frames of nnc
        check_last_frame(error)
    assert type(error) is kind, text
    for word in words:
        assert word in text, f"{word!r} is not in:\n{text}"
    assert re.search(r"^Fix: \S.*\.$", text, re.MULTILINE), f"no fix in:\n{text}"
    if at is not None:
        assert re.search(rf"^  at \S*test_\w+\.py:\d+ in .*{re.escape(at)}", text, re.MULTILINE), text
    else:
        file, line = user_line(error)
        assert re.search(rf"^  at \S*{file}:{line} in ", text, re.MULTILINE), f"{file}:{line} is not in:\n{text}"


def check_last_frame(error: BaseException) -> None:
    """Asserts that the traceback ends in the user's frame, as docs/errors.md promises, and not in one of nnc."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback is not None
    is_generated = traceback.tb_frame.f_code.co_filename == "<string>"  # the __init__ of a dataclass
    assert is_generated or not is_ours(traceback.tb_frame), traceback.tb_frame


def user_line(error: BaseException) -> tuple[str, int]:
    """File name and line of the innermost frame of a test in the error's traceback."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        file = Path(traceback.tb_frame.f_code.co_filename)
        if file.parent == HERE and file.name.startswith("test_"):
            found.append((file.name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found[-1]
