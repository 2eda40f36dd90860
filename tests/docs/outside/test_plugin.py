"""A package outside nnc adds a command, a column, a pass and a backend; nnc itself is not touched."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import DTypeError, RegistryError
from nnc.graph import attribute, check_rule, command, from_json, kernel, run_passes, to_json

FOLDER = Path(__file__).parent / "plugin"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("nnc_plugin")


@pytest.fixture
def plugin(package: Any, own_registries: None) -> Any:
    return package.install()


def softsign(x: Any) -> Any:
    return command("softsign")(x, scale=2.0)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_new_command_runs_eagerly(plugin: Any) -> None:
    np.testing.assert_allclose(softsign(nnp.asarray([1.0, -3.0])), [1.0, -1.5])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_new_command_keeps_every_float_dtype(plugin: Any, dtype: str) -> None:
    result = softsign(nnp.ones(3, dtype=dtype))
    assert result.dtype.name == dtype
    assert result.tolist() == [1.0, 1.0, 1.0]


def test_the_new_command_is_compiled(plugin: Any) -> None:
    compiled = nnc.compile(lambda x: nnp.sum(softsign(x)))
    assert float(compiled(nnp.asarray([1.0, -3.0]))) == -0.5
    assert "softsign" in compiled.lower(nnp.ones(2)).as_text()


def test_the_new_command_is_differentiated_to_second_order(plugin: Any) -> None:
    nnc.testing.check_grads(softsign, (np.asarray([0.5, -2.0]),), order=2)
    assert float(nnc.grad(softsign)(3.0)) == 2 / 16
    assert float(nnc.grad(nnc.grad(softsign))(3.0)) == -4 / 64


def test_the_new_command_is_batched(plugin: Any) -> None:
    x = nnp.asarray([[1.0, -3.0], [0.0, 7.0]])
    np.testing.assert_array_equal(nnc.vmap(softsign)(x), softsign(x))
    per_row = nnc.vmap(nnc.grad(lambda row: nnp.sum(softsign(row))))(x)
    np.testing.assert_allclose(per_row, 2 / (1 + np.abs(np.asarray(x))) ** 2)


def test_the_new_command_is_used_by_hand_and_stored(plugin: Any) -> None:
    builder = nnc.graph.GraphBuilder()
    x = builder.input((2,), "float32")
    graph = builder.build(builder.add("softsign", x, scale=2.0))
    assert from_json(to_json(graph))(nnp.asarray([1.0, -3.0])).tolist() == [1.0, -1.5]


def test_the_new_command_words_its_own_mistakes(plugin: Any) -> None:
    with pytest.raises(
        DTypeError, match=r"softsign: x must be floating-point, it is int64\.\n  x int64\[2\](.|\n)*Fix: "
    ):
        softsign(nnp.asarray([1, 2]))


def test_a_mistake_that_the_package_words_points_at_the_user_s_line(plugin: Any) -> None:
    x = nnp.asarray([1, 2])
    for transform in (lambda f: f, nnc.make_graph, nnc.compile, nnc.vmap):
        with pytest.raises(DTypeError, match=r"at \S*test_plugin\.py:\d+ in softsign:   return command") as caught:
            transform(softsign)(x)
        assert caught.value.__context__ is None or caught.value.__suppress_context__


# -- the column --------------------------------------------------------------------------------------------------------


def test_the_new_column_is_read_by_the_package_s_pass(plugin: Any) -> None:
    graph = nnc.make_graph(lambda x: nnp.exp(softsign(x)) + x)(nnp.ones(10))
    assert run_passes(graph, ["estimate_latency"]).attrs["cycles"] == 10 * (15 + 20 + 4)


def test_the_new_column_has_cells_for_old_and_new_commands(plugin: Any) -> None:
    latency = attribute("latency")
    assert latency is plugin.latency
    assert (latency[command("exp")], latency[plugin.softsign], latency.get(command("log"), 1)) == (20, 15, 1)


# -- the pass ----------------------------------------------------------------------------------------------------------

LARGE = np.full(3, 200, np.float32)


def product(x: Any, y: Any) -> Any:
    """Infinity times 0 at LARGE and -LARGE, unless the exponentials are joined."""
    return nnp.exp(x) * nnp.exp(y)


def test_the_new_pass_runs_in_every_compilation(plugin: Any) -> None:
    assert np.isnan(np.asarray(product(LARGE, -LARGE))).all()
    compiled = nnc.compile(product)
    assert compiled(LARGE, -LARGE).tolist() == [1, 1, 1]
    assert "pass join_exponentials" in dict(compiled.lower(LARGE, -LARGE).compile().timings.rows)


def test_the_new_pass_rewrites_loops_and_branches_too(plugin: Any) -> None:
    looped = nnc.compile(lambda x, y: nnc.scan(lambda c, row: (c + product(row, -row), None), y, x)[0])
    assert looped(LARGE, np.float32(0)) == 3
    chosen = nnc.compile(lambda x, y: nnc.cond(nnp.sum(x) > 0, product, lambda x, y: x, x, y))
    assert chosen(LARGE, -LARGE).tolist() == [1, 1, 1]


def test_the_equation_of_the_new_pass_is_true(package: Any) -> None:
    check_rule(package.product_of_exponentials)


def test_other_graphs_stay_as_they_are(plugin: Any) -> None:
    for function in (lambda x, y: nnp.exp(x) + nnp.exp(y), lambda x, y: (e := nnp.exp(x)) * nnp.exp(y) + e):
        graph = nnc.make_graph(function)(LARGE, LARGE)
        assert run_passes(graph, ["join_exponentials"]).nodes == graph.nodes


# -- the backend -------------------------------------------------------------------------------------------------------


def test_the_second_backend_runs_supported_commands(plugin: Any) -> None:
    x = nnp.asarray([0.5, -1.0])
    np.testing.assert_array_equal(nnp.tanh(x), np.tanh(np.asarray(x)))
    assert [str(specs[0]) for specs in plugin.calls] == ["float32[2]"]


@pytest.mark.parametrize(("shape", "dtype"), [((2,), "float16"), ((2,), "complex64"), ((0,), "float32")])
def test_commands_that_the_second_backend_lacks_run_as_before(plugin: Any, shape: tuple[int], dtype: str) -> None:
    result = nnp.tanh(nnp.ones(shape, dtype=dtype))
    assert (result.shape, result.dtype.name) == (shape, dtype)
    assert plugin.calls == []


def test_the_second_backend_serves_compiled_functions(plugin: Any) -> None:
    compiled = nnc.compile(lambda x: nnp.tanh(x) * 2)
    assert compiled(nnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert [str(specs[0]) for specs in plugin.calls] == ["float32[3]"]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("add", ["add_softsign", "add_pass", "add_backend"])
def test_registering_a_second_time_raises(plugin: Any, package: Any, add: str) -> None:
    arguments = {"add_softsign": (), "add_pass": (), "add_backend": ([],)}
    with pytest.raises(RegistryError, match="already"):
        getattr(package, add)(*arguments[add])


def test_nothing_stays_behind(package: Any) -> None:
    with pytest.raises(RegistryError, match="no command 'softsign'"):
        command("softsign")
    assert np.isnan(np.asarray(nnc.compile(product)(LARGE, -LARGE))).all()
    assert "inplace_numpy" not in [entry.backend for entry in kernel.get(command("tanh"), ())]


def test_a_graph_of_the_plugin_loads_in_a_process_that_imports_it_and_is_refused_elsewhere(
    plugin: Any, tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    nnc.graph.save_graph(path, nnc.make_graph(softsign)(nnp.ones(2)))
    program = "import sys, nnc; {}print(nnc.graph.load_graph(sys.argv[1])(nnc.asarray([1.0, -3.0])).tolist())"

    def run(extra: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", program.format(extra), str(path), str(FOLDER)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    with_plugin = run("sys.path.append(sys.argv[2]); import nnc_plugin; nnc_plugin.install(); ")
    assert with_plugin.stdout == "[1.0, -1.5]\n", with_plugin.stderr
    assert "no command 'softsign' is registered" in run("").stderr
