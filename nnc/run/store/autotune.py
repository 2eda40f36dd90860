"""Finds out which of several kernels is the fastest here, and remembers it: users ask for that by `nnc.compile(autotune=True)`.

The winner depends on the user's machine and shapes, so that no trial of a developer can know it. Trials of the figures in
`nnc.device.targets` belong to `benchmarks`.
Kernels run on data made up for the purpose, never on the user's. Commands with an effect are not run, kernels that fail on such
data do not take part, and where nothing can be measured the priorities of the backends decide, as they do without autotuning.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.libraries import library_versions, numpy_blas
from nnc.base.machine import processor, version_of
from nnc.base.options import Options, chosen_cpu
from nnc.device.target import Target
from nnc.graph import Command, Kernel, TensorSpec, infer_specs, value_text
from nnc.graph.registry import effect
from nnc.lower.plan.stages import NDArray
from nnc.run.store.cache import Cache

Candidates = Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any], Target], Sequence[Kernel]]

_SECONDS = 0.02  # that are spent on a candidate, or one run
_RUNS = 10
_HOPELESS = 4  # times the best so far: no further run
_MARGIN = 0.95  # of the time of the kernel with the highest priority: another one must be that fast
_KIND = "kernels"  # of entries in the cache


class Tuner:
    """Chooses kernels by measuring them, and remembers each choice.

    Args:
        candidates: returns the kernels for a command on inputs of these specs, the highest priority first.
        options: the options; `cache_folder` is where choices are kept.
    """

    def __init__(self, candidates: Candidates, options: Options) -> None:
        self.candidates = candidates
        self.cache = Cache(options.cache_folder) if options.cache_folder is not None else None
        self._known: dict[Any, Kernel] = {}

    def __call__(
        self, command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target
    ) -> Kernel:
        """Returns the kernel to run a command on inputs of these specs."""
        asked = command, specs, tuple(sorted(params.items())), machine
        if asked not in self._known:
            self._known[asked] = self._choose(command, specs, params, machine)
        return self._known[asked]

    @cached_property
    def _here(self) -> dict[str, str]:
        """Facts on which measurements depend beside the command."""
        facts = processor(Path("/proc/cpuinfo"), chosen_cpu())
        machine = {name: facts[name] for name in ("model", "system", "cores", "threads", "vector units")}
        versions = {"nnc": version_of("nnc"), **library_versions()}
        return {**machine, "python": platform.python_version(), "BLAS": numpy_blas(), **versions}

    def _choose(
        self, command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target
    ) -> Kernel:
        kernels = self.candidates(command, specs, params, machine)
        names = [kernel.backend for kernel in kernels]
        if len(kernels) == 1 or command in effect or any(spec.dtype == dtypes.TAPE for spec in specs):
            return kernels[0]
        key = {
            "here": self._here, "command": command.name, "specs": list(map(repr, specs)),
            "params": {name: value_text(value) for name, value in params.items()}, "backends": names,
        }  # fmt: skip
        known = self.cache.read(_KIND, key) if self.cache is not None else None
        if known in names:
            return kernels[names.index(known)]
        seconds = measure(command, kernels, specs, params)
        if not seconds:
            return kernels[0]
        best = min(seconds, key=seconds.__getitem__)
        chosen = 0 if 0 in seconds and seconds[best] > _MARGIN * seconds[0] else best
        if self.cache is not None:
            self.cache.write(_KIND, key, names[chosen])
        return kernels[chosen]


def measure(
    command: Command, kernels: Sequence[Kernel], specs: tuple[TensorSpec, ...], params: Mapping[str, Any]
) -> dict[int, float]:
    """Returns the shortest time of each kernel that runs on made-up data, in seconds, by its place in `kernels`; they take
    turns.
    """
    with np.errstate(all="ignore"):
        runs = {i: _prepare(command, kernel, specs, params) for i, kernel in enumerate(kernels)}
        spent = dict.fromkeys(runs, 0.0)
        best: dict[int, float] = {}
        for turn in range(1 + _RUNS):  # the first, in which libraries get ready, only rules out hopeless kernels
            least = min(best.values(), default=0.0)
            for i in [i for i in runs if not turn or (spent[i] < _SECONDS and best[i] <= _HOPELESS * max(least, 1e-4))]:
                began = time.perf_counter()
                try:
                    runs[i]()
                except Exception:  # any error means that this kernel does not run on this data
                    best.pop(i, None)
                    del runs[i]
                    continue
                seconds = time.perf_counter() - began
                spent[i] += seconds if turn else 0.0
                best[i] = seconds if turn == 1 else min(seconds, best.get(i, seconds))
    return best


def _prepare(
    command: Command, kernel: Kernel, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]
) -> Callable[[], None]:
    """Returns a run of a kernel, on inputs, outputs and workspace of its own."""
    inputs = [scratch(spec, i) for i, spec in enumerate(specs)]
    outputs = [np.empty(spec.shape, spec.dtype) for spec in infer_specs(command, specs, params)]
    nbytes = kernel.workspace(specs, params)
    if nbytes:
        outputs.append(np.empty(nbytes, np.uint8))
    return lambda: kernel.run(inputs, outputs, params)


def scratch(spec: TensorSpec, seed: int = 0) -> NDArray:
    """Made-up data: floats between 0.5 and 1.5; zeros elsewhere, which are indices of any tensor that is not empty.

    Example:
        >>> scratch(TensorSpec((2,), "int32"))
        array([0, 0], dtype=int32)
    """
    if not dtypes.is_inexact(spec.dtype):
        return np.zeros(spec.shape, spec.dtype)
    return np.random.default_rng(seed).uniform(0.5, 1.5, spec.shape).astype(spec.dtype)
