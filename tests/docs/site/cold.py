"""Runs pages and notebooks, each in a process of its own: a fork of one that has imported only nnc and its public names.

python -m tests.docs.site.cold                        reads paths from stdin, and answers each with a line of JSON: its failures
python -m tests.docs.site.cold --renew NOTEBOOK...    stores the outputs of today in notebooks: read the difference before a commit
"""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nnc
from tests.docs.site import notebook

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def failures_of_page(path: Path) -> list[str]:
    """Runs the examples of a Markdown page in their order, with no names but those that the page imports."""
    examples = doctest.DocTestParser().get_doctest(
        path.read_text(encoding="utf-8"), {"__name__": "__main__"}, path.name, str(path), 0
    )
    found: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=found.append)
    return found


def failures(path: Path) -> list[str]:
    """Runs a page or a notebook. A warning is an error."""
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # of the child: pages may write files where they are
        return notebook.failures(path) if path.suffix == ".ipynb" else failures_of_page(path)


def renewed(path: Path) -> list[str]:
    notebook.renew(path)
    return []


def in_child(work: Callable[[Path], list[str]], path: Path) -> list[str]:
    """The result of work in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            result = work(path)
        except BaseException:  # the parent reports it
            result = [traceback.format_exc()]
        with os.fdopen(writing, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else [f"{path}: its process ended early"]


@contextmanager
def server() -> Iterator[Callable[[Path], list[str]]]:
    """A function that runs a page in a process that has never run another one."""
    command = [sys.executable, "-m", "tests.docs.site.cold"]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout

        def ask(path: Path) -> list[str]:
            process.stdin.write(f"{path.resolve()}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def main(arguments: list[str]) -> None:
    for name in nnc.__all__:  # loads the parts that `import nnc` leaves for their first use
        getattr(nnc, name)
    if arguments[:1] == ["--renew"]:
        for path in arguments[1:]:
            problems = in_child(renewed, Path(path).resolve())
            if problems:
                raise SystemExit("\n".join(problems))
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # pages that print beside Python's own streams leave the answers alone
    for line in sys.stdin:
        print(json.dumps(in_child(failures, Path(line.strip()))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
