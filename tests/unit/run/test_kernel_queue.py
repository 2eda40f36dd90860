"""Kernels are printed once and compiled early, and hardly ever in vain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.run.store.stored as stored
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower
from nnc.errors import InternalError
from nnc.graph import Command, Graph, Kernel, TensorSpec, run_passes
from nnc.lower.kernels.native import Native
from nnc.lower.phases import BEFORE_FUSION, FUSE, SETTLING, names_of
from nnc.lower.plan.bind import bind_buffers, emit
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Step
from nnc.run.kernel_queue import fused_alone, settled
from nnc.run.program import Program
from tests.figures import HERE

X = np.linspace(-1, 1, 48 * 40, dtype=np.float32).reshape(48, 40)
W = np.linspace(1, -1, 40 * 56, dtype=np.float32).reshape(40, 56)


class Watched:
    """A compiler that notes the expected texts, the texts that are then asked for, and how many were done by then.

    `refuses`: it takes no text.
    """

    def __init__(self, *, refuses: bool = False) -> None:
        found = compiler()
        assert found is not None
        self.inner, self.refuses = found, refuses
        self.expected: list[str] = []
        self.asked: list[str] = []

    def works(self) -> bool:
        return True

    def expect(self, wanted: Native | str | None = None) -> None:
        if isinstance(wanted, Native):
            self.expected.append(wanted.name)
        self.inner.expect(wanted)

    def load(self, natives: Sequence[Native]) -> Sequence[Any]:
        if self.refuses:
            raise InternalError("LLVM does not take this text")
        self.asked += [native.name for native in natives]
        return self.inner.load(natives)

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Any:
        return self.inner.load_entry(text, symbols, held)


def graph_of(function: Any) -> Graph:
    return nnc.make_graph(function)(X, W)


def lowered(function: Any, watched: Watched, **options: Any) -> Program:
    return lower(graph_of(function), Options(**options), choose_kernel, watched)


def settled_steps(function: Any) -> list[str]:
    """The commands of which it is known before anything is fused that they will be steps."""
    graph = run_passes(graph_of(function), names_of(SETTLING), Options())
    return [step.command.name for step in walk(emit(settled(graph, HERE)).steps)]


def training(x: Any, w: Any) -> Any:
    value, gradient = nnc.value_and_grad(lambda w: nnp.mean((nnp.tanh(x @ w) - 0.5) ** 2))(w)
    return w - 0.1 * gradient, value


def sorted_products(x: Any, w: Any) -> Any:
    return nnp.sort((x @ w).T, axis=0), (w.T @ x.T)[::2], nnp.cumsum(x, axis=1)


def joined(x: Any, w: Any) -> Any:
    return nnp.concatenate([nnp.exp(x), x * 2, x + w[:, :48].T], axis=1), nnp.tanh(x @ w)


def iterations(x: Any, w: Any) -> Any:
    return nnc.scan(lambda c, row: (nnp.tanh(c @ w @ w.T + row), nnp.sum(c)), x, nnp.stack([x, x + 1]))


def short_iterations(x: Any, w: Any) -> Any:
    return nnc.scan(lambda c, row: (c @ row + row[0, 0], nnp.sum(c)), x[:4, :4], nnp.stack([x[:4, :4], w[:4, :4]]))


def short(x: Any, w: Any) -> Any:
    return nnp.exp(x[:4, :4]), nnp.sum(w[0, :4]), nnp.sort(x, axis=0)


FUNCTIONS = [training, sorted_products, joined, iterations, short_iterations, short]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_expected_kernels_are_requested(function: Any) -> None:
    watched = Watched()
    lowered(function, watched)
    assert watched.expected
    assert set(watched.expected) <= set(watched.asked)
    assert len(watched.expected) == len(set(watched.expected))


@pytest.mark.parametrize("function", [training, sorted_products], ids=lambda function: function.__name__)
def test_all_kernels_of_a_program_without_loops_are_expected(function: Any) -> None:
    watched = Watched()
    lowered(function, watched)
    assert set(watched.asked) == set(watched.expected)


def test_kernels_are_expected_before_buffers_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    expected: list[int] = []

    def bind(*args: Any, **options: Any) -> Any:
        expected.append(len(watched.expected))
        return bind_buffers(*args, **options)

    monkeypatch.setattr("nnc.compiled.pipeline.bind_buffers", bind)
    lowered(training, watched)
    assert expected == [len(watched.expected)]


def test_products_are_settled_unless_something_is_computed_of_their_elements() -> None:
    assert settled_steps(lambda x, w: x @ w) == ["dot"]
    assert settled_steps(lambda x, w: (x @ w).T) == ["dot"]
    assert settled_steps(lambda x, w: nnp.tanh(x @ w)) == []
    assert settled_steps(lambda x, w: nnp.sum(x @ w, axis=0)) == ["dot"]
    assert settled_steps(lambda x, w: nnp.sort(nnp.exp(x @ w))) == ["sort"]


def test_kernels_with_sums_are_final_unless_they_may_go_with_a_product() -> None:
    def final(function: Any) -> list[str]:
        graph = run_passes(graph_of(function), names_of((*BEFORE_FUSION, FUSE)), Options())
        return [step.command.name for step in emit(fused_alone(graph)).steps]

    assert final(lambda x, w: nnp.sum(nnp.exp(x), axis=0)) == ["fused"]
    assert final(lambda x, w: nnp.exp(x)) == []
    assert final(lambda x, w: nnp.sum(nnp.exp(x @ w), axis=0)) == []
    assert final(lambda x, w: nnp.sum(nnp.exp(nnp.sort(x @ w)), axis=0)) == ["fused"]
    assert final(lambda x, w: nnc.fori_loop(0, 3, lambda i, x: x - nnp.mean(x, axis=0), x)) == ["fused"]


def test_joined_and_elementwise_nodes_are_not_settled() -> None:
    assert settled_steps(lambda x, w: (nnp.concatenate([x, x + 1]), nnp.sin(x))) == []


def test_settled_nodes_of_a_loop_are_found_once() -> None:
    assert settled_steps(iterations) == ["dot"]


def test_settled_steps_read_operands_through_their_strides() -> None:
    graph = run_passes(graph_of(lambda x, w: nnp.sort(x[::3].T, axis=0)), names_of(SETTLING), Options())
    (step,) = emit(settled(graph, HERE)).steps
    assert step.inputs[0].spec.shape == (40, 16)
    assert step.inputs[0].strides == (4, 3 * 40 * 4)


def test_of_a_program_whose_text_is_refused_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")
    with pytest.raises(InternalError, match="LLVM does not take"):
        lowered(training, Watched(refuses=True), cache_folder=tmp_path)
    assert not list(tmp_path.rglob("programs"))
    lowered(training, Watched(), cache_folder=tmp_path)
    assert len(list(tmp_path.rglob("programs/*.bin"))) == 1


def test_a_stored_program_is_compiled_when_it_is_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")
    for _ in range(2):
        watched = Watched()
        program = lowered(training, watched, cache_folder=tmp_path)
        assert watched.asked
    assert program.code is not None
    assert not watched.expected  # nothing is printed, and texts on disk are read


def test_steps_of_one_node_share_a_kernel_that_is_printed_once() -> None:
    printed: list[Step] = []

    def choose(command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> Kernel:
        kernel = choose_kernel(command, specs, params, machine)

        def native(step: Step) -> Any:
            printed.append(step)
            return kernel.native(step)

        return replace(kernel, native=native) if command.name == "sort" else kernel

    lower(graph_of(lambda x, w: nnp.sort(x * 2, axis=0)), Options(), choose, Watched())
    assert len(printed) == 1
