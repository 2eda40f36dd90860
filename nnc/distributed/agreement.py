"""Agreement of processes on the program that they run together: they compare its text when it is traced."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from itertools import zip_longest

from nnc.base.context import get_context
from nnc.compiled.processes import Site, known_world
from nnc.errors import TraceError, user_error
from nnc.graph import Graph
from nnc.graph.text import to_text

_CONSTANT = re.compile(r" = constant\(.*\)$", re.MULTILINE)  # values may depend on the rank, as in fold_in(key, rank())
_SOURCE = re.compile(r"  # .*$")
_OWN = {"cache_folder", "kernel_threads"}  # options that change no order of collectives: ranks may have their own


def check_agreement(where: str, graph: Graph) -> None:
    """Raises in all processes unless all of them have traced the same graph, values of constants aside, for the same options.

    Without it, processes that add arrays of different dtypes would get numbers that mean nothing, and one whose memory budget
    makes it compute a sum again would wait for others that do not.

    Args:
        where: the function of nnc.
        graph: the program of a place.

    Raises:
        TraceError: they differ; the message has the first option or line that does, of two ranks.
    """
    found = known_world()
    options = _options()
    text = options + _CONSTANT.sub(" = constant", to_text(graph, sources=False))
    with found.waiting(Site("the comparison of programs", found.size, 1)):
        digests: list[bytes] = found.mpi.COMM_WORLD.allgather(sha256(text.encode()).digest())
        if len(set(digests)) == 1:
            return
        texts: list[str] = found.mpi.COMM_WORLD.allgather(options + _CONSTANT.sub(" = constant", to_text(graph)))
    usual = Counter(digests).most_common(1)[0][0]
    one, other = digests.index(usual), next(rank for rank, digest in enumerate(digests) if digest != usual)
    lines = _first_difference(texts[one].splitlines(), texts[other].splitlines())
    problem = "the processes have traced different programs."
    operands = {f"rank {rank}": line for rank, line in zip((one, other), lines, strict=True)}
    fix = "let all processes run the same code with the same options, on arguments of the same shapes and dtypes."
    raise user_error(TraceError, where, problem, operands=operands, fix=fix)


def _options() -> str:
    """Returns the options of the compiled function that is being traced, each in a line; nothing outside of one."""
    options = get_context().program
    shared = () if options is None else (each.name for each in fields(options) if each.name not in _OWN)
    return "".join(f"{name} = {getattr(options, name)!r}\n" for name in shared)


def _first_difference(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Returns the first lines that differ, source lines aside."""
    for a, b in zip_longest(one, other, fillvalue="nothing more"):
        if _SOURCE.sub("", a) != _SOURCE.sub("", b):
            return a.strip(), b.strip()
    return "", ""
