"""Captured graphs on devices of CUDA, on the stand-in for the driver: nodes, their order, replaced addresses, libraries' calls."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device.cuda.graphs import CudaGraph
from nnc.testing.devices.sim.graph import SimGraph
from tests.devices.cuda.cublaslt import FakeCublasLt
from tests.devices.cuda.machine import Machine
from tests.devices.test_ptx import check_close


def network(x: Any, w: Any, b: Any) -> Any:
    y = nnc.nn.gelu(x @ w + b)
    return nnp.sort(y, axis=1)[1:], nnp.cumsum(nnp.tanh(x), axis=0) @ (nnp.sort(w, axis=0) @ y.T)


def drawn(seed: int) -> Any:
    draw = np.random.default_rng(seed)
    return tuple(draw.normal(size=shape).astype(np.float32) for shape in ((5, 4), (4, 8), (8,)))


def graph_of(f: Any, *arguments: Any) -> CudaGraph | None:
    executable, _ = f.find(*arguments)
    found: CudaGraph | None = executable.queued._frame._graph
    return found


def test_a_graph_is_launched_a_hundred_times_with_other_pointers(machine: Machine, library: FakeCublasLt) -> None:
    f, cpu = nnc.compile(network, streams=3), nnc.compile(network)
    held: list[Any] = []
    for i in range(100):
        arguments = drawn(i % 5)
        there = nnc.device_put(arguments, machine.name)
        result = f(*there)
        check_close(result, cpu(*arguments), 1e-5)
        held = [*held[-(i % 7) :], (there, result)]  # so that memory is taken and given back in turns
    assert isinstance(graph_of(f, *there), CudaGraph)
    assert machine.graph_calls.count("cuGraphLaunch") == 98
    assert machine.graph_calls.count("cuGraphInstantiateWithFlags") == 16
    assert machine.graph_calls.count("cuGraphExecKernelNodeSetParams_v2") > 20


def test_addresses_that_come_back_change_nothing_in_the_graphs(machine: Machine, library: FakeCublasLt) -> None:
    f, cpu = nnc.compile(network), nnc.compile(network)
    sets = [drawn(i) for i in range(3)]
    there = [nnc.device_put(arguments, machine.name) for arguments in sets]
    for i in range(40):
        result = f(*there[i % 3])  # the results before are freed behind the call, so they take four places in turns
        check_close(result, cpu(*sets[i % 3]), 1e-5)
    assert machine.graph_calls.count("cuGraphInstantiateWithFlags") == 12
    assert not [name for name in machine.graph_calls if "SetParams" in name]


def test_a_graph_whose_addresses_were_replaced_can_go_back_to_the_old_ones(
    machine: Machine, library: FakeCublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("nnc.device.cuda.graphs"), "_MOST_KEPT", 1)
    f, cpu = nnc.compile(network), nnc.compile(network)
    sets = [drawn(i) for i in range(3)]
    there = [nnc.device_put(arguments, machine.name) for arguments in sets]
    for i in (0, 0, 0, 0, 1, 0, 2, 1, 0, 0, 1):
        check_close(f(*there[i]), cpu(*sets[i]), 1e-5)
    assert machine.graph_calls.count("cuGraphInstantiateWithFlags") == 1


def test_nodes_of_a_graph_have_the_order_of_the_streams(machine: Machine, library: FakeCublasLt) -> None:
    f = nnc.compile(network, streams=3)
    there = nnc.device_put(drawn(0), machine.name)
    for _ in range(3):
        f(*there)
    graph = graph_of(f, *there)
    assert graph is not None
    (segment,) = graph.segments
    (kept,) = segment.kept.values()
    made = machine.graphs.executables[kept.executable]
    sim = SimGraph(machine.sim.queues, machine.sim.pool, graph.nodes)  # type: ignore[arg-type]
    assert made.order() == sim.order() and len(made.nodes) == len(graph.nodes)
    assert any(len(node.after) > 1 for node in graph.nodes) and sum(not node.after for node in graph.nodes) > 1


def test_a_graph_is_made_anew_where_the_driver_does_not_update_it(
    machine: Machine, library: FakeCublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("nnc.device.cuda.graphs"), "_MOST_KEPT", 1)
    f = nnc.compile(network)
    machine.fails["cuGraphExecChildGraphNodeSetParams"] = 910
    for i in range(5):
        check_close(f(*nnc.device_put(drawn(i), machine.name)), nnc.compile(network)(*drawn(i)), 1e-5)
        held = f(*nnc.device_put(drawn(i), machine.name))  # so that results lie elsewhere in the next call
    assert machine.graph_calls.count("cuGraphInstantiateWithFlags") > 1 and held
    gc.collect()
    assert len(machine.graphs.graphs) == len(machine.graphs.executables) == 1


def test_steps_from_python_stand_between_graphs(machine: Machine, library: FakeCublasLt) -> None:
    def f(x: Any, w: Any, b: Any, shift: Any) -> Any:
        y = nnp.sort(nnp.tanh(x @ w + b), axis=1)
        gram = nnp.cumsum(y, axis=0) @ nnp.sort(y, axis=0).T
        root = nnp.linalg.cholesky(gram @ gram.T + shift * nnp.eye(5, dtype="float32"))
        z = nnp.cumsum(nnp.sort(root @ y, axis=1), axis=0)
        return nnp.sort(z @ w.T, axis=0), root

    compiled, cpu, held = nnc.compile(f, streams=3), nnc.compile(f), list[Any]()
    for i in range(20):
        arguments = (*drawn(i % 4), np.float32(9))
        there = nnc.device_put(arguments, machine.name)
        result = compiled(*there)
        check_close(result, cpu(*arguments), 1e-4)
        held = [*held[-(i % 5) :], (there, result)]
    graph = graph_of(compiled, *there)
    assert graph is not None and len(graph.segments) == 2
    assert machine.graph_calls.count("cuGraphLaunch") == 2 * 18
    with pytest.raises(nnc.errors.LinAlgError, match=r"cholesky: a matrix is not positive definite[^$]*test_graphs.py"):
        compiled(*nnc.device_put((*drawn(0), np.float32(-1e6)), machine.name))
    check_close(compiled(*there), cpu(*arguments), 1e-4)


def test_programs_with_many_steps_from_python_are_not_captured(machine: Machine) -> None:
    f = nnc.compile(network)  # CuPy multiplies
    for i in range(4):
        check_close(f(*nnc.device_put(drawn(i), machine.name)), nnc.compile(network)(*drawn(i)), 1e-5)
    assert machine.graph_calls == []


def test_products_without_an_algorithm_are_not_captured(machine: Machine, library: FakeCublasLt) -> None:
    library.refuses = True
    f = nnc.compile(network)
    for i in range(4):
        check_close(f(*nnc.device_put(drawn(i), machine.name)), nnc.compile(network)(*drawn(i)), 1e-5)
    gc.collect()
    assert "cuGraphLaunch" not in machine.graph_calls and machine.graphs.graphs == {}


def test_an_error_of_a_launched_graph_is_worded(machine: Machine, library: FakeCublasLt) -> None:
    f = nnc.compile(network)
    there = nnc.device_put(drawn(0), machine.name)
    for _ in range(3):
        f(*there)
    machine.fails["cuGraphLaunch"] = 700
    with pytest.raises(nnc.errors.DeviceError, match="CUDA reports CUDA_ERROR_ILLEGAL_ADDRESS"):
        f(*there)
    machine.fails.clear()
