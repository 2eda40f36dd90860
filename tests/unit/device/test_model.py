"""Figures of described machines: tiles fit registers, panels and values fit caches, and programs are right."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.kernels.attention.blocks import _ROWS, Tiling
from nnc.backends.cpu.kernels.products import tiling
from nnc.backends.cpu.kernels.products.thin_products import _DOT_ROWS
from nnc.backends.loaded import choose_kernel, compiler
from nnc.backends.products import product_of
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower
from nnc.device.model import fitted, tile_rows, tiles
from nnc.device.targets import Cache, cpu_target, described
from nnc.graph import TensorSpec, command
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE

KB = 1 << 10


class Core(NamedTuple):
    """The facts that a system tells of a kind of core, and the vectors and registers that it has."""

    model: str
    system: str
    units: str
    first: Cache
    second: Cache
    vector_bytes: int
    registers: int


CORES = {
    "Zen 3": Core("AMD EPYC 7B13", "Linux x86_64", "avx2, fma", Cache(32 * KB, 8), Cache(512 * KB, 8), 32, 16),
    "Skylake client": Core("Intel(R) Core(TM) i7-6700", "Linux x86_64", "avx2, fma", Cache(32 * KB, 8), Cache(256 * KB, 4), 32, 16),
    "Zen 5": Core("AMD EPYC", "Linux x86_64", "avx2, fma, avx512f, avx512_bf16", Cache(48 * KB, 12), Cache(1024 * KB, 16), 64, 32),
    "Ice Lake client": Core("Intel", "Linux x86_64", "avx2, fma, avx512f", Cache(48 * KB, 12), Cache(512 * KB, 8), 64, 32),
    "Granite Rapids": Core("Intel", "Linux x86_64", "avx2, fma, avx512f", Cache(48 * KB, 12), Cache(2048 * KB, 16), 64, 32),
    "Neoverse N1": Core("Neoverse-N1", "Linux aarch64", "asimd", Cache(64 * KB, 4), Cache(1024 * KB, 8), 16, 32),
    "Apple M1": Core("arm", "Darwin arm64", "unknown", Cache(128 * KB, 8), Cache(12 << 20, 12), 16, 32),
    "Nehalem": Core("Intel(R) Xeon(R)", "Linux x86_64", "none", Cache(32 * KB, 8), Cache(256 * KB, 8), 16, 16),
    "unknown": Core("unknown", "Windows AMD64", "unknown", Cache(32 * KB, 8), Cache(512 * KB, 8), 32, 16),
}  # fmt: skip
PRODUCTS = [
    (m, k, n) for m in (1, 3, 5, 16, 64, 100, 1024) for k in (7, 300, 1024, 5000) for n in (1, 10, 64, 130, 1000, 2048)
]


def machine_of(core: Core, cores: int = 2) -> Target:
    facts = {"model": core.model, "system": core.system, "vector units": core.units}
    return described(facts, cores, {"1": core.first, "2": core.second})


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> Core:
    return CORES[request.param]


def test_vectors_and_registers_are_those_of_the_core(core: Core) -> None:
    machine = machine_of(core)
    assert (machine.vector_bytes, machine.registers) == (core.vector_bytes, core.registers)
    assert machine.has_masks == (core.vector_bytes == 64)
    assert machine.memory.first_cache_bytes == core.first.nbytes
    assert machine.memory.second_cache_bytes == core.second.nbytes
    assert machine.products.slow_second_cache == ("Intel" in core.model)


def test_tiles_of_products_fit_registers_and_their_panels_half_of_the_second_cache(core: Core) -> None:
    machine = machine_of(core)
    for m, k, n in PRODUCTS:
        for kind in ("float32", "float64"):
            dtype = dtypes.as_dtype(kind)
            views = [View.whole(i, TensorSpec(shape, dtype)) for i, shape in enumerate(((m, k), (k, n), (m, n)))]
            params = {"contract": ((1,), (0,)), "batch": ((), ())}
            product = product_of(Step(command("dot"), tuple(views[:2]), (views[2],), params, ()))
            shape = tiling.shape_of(product, dtype, machine)
            assert shape is not None
            rows, vectors = shape.tile.rows, shape.tile.vectors
            assert rows * vectors + vectors + 1 <= machine.registers
            if shape.tile.packed:
                assert shape.panel_bytes(product) <= core.second.nbytes // 2
            assert shape.chunk * shape.group > 0
            if (
                m >= 16 and n >= 1000 and k >= 300
            ):  # as many multiplications as three quarters of the best tile's, for a vector read
                best = max(r * v / (r + v) for v, r in tiles(machine.registers).items())
                assert rows * vectors / (rows + vectors) >= 0.6 * best, (m, k, n, rows, vectors)


def test_values_that_are_to_stay_fit_the_caches(core: Core) -> None:
    machine = machine_of(core)
    second, products = core.second.nbytes, machine.products
    assert machine.memory.cached_bytes <= second // 4
    assert 4 * machine.fusion.row_elements <= second // 8
    assert products.unpacked_bytes <= second // 8
    assert products.solved_buffer_bytes <= second // 2
    assert products.row_panel_bytes <= core.first.nbytes // 4
    assert products.displacing_bytes * core.first.ways == core.first.nbytes
    blocks = Tiling.of(dtypes.float32, machine)  # keys and values of 128 features, and a square of scores
    assert 4 * blocks.keys * (2 * 128 + blocks.keys) <= second


def test_records_of_trials_fit_the_registers() -> None:
    for registers in (16, 32):
        assert all(rows * vectors + vectors <= registers for vectors, rows in _ROWS[registers].items())
        assert all(rows * n + n <= registers for n, rows in enumerate(_DOT_ROWS[registers], 1))
    assert tiles(16) == {1: 14, 2: 6, 3: 4, 4: 2}
    assert tiles(32)[2] == 14 and tile_rows(16, 16) == 0


def test_more_cores_get_more_parts() -> None:
    zen = CORES["Zen 3"]
    assert [machine_of(zen, cores).products.parts for cores in (1, 2, 8, 64)] == [16, 16, 16, 128]
    assert machine_of(zen, 64).loops.row_parts == machine_of(zen, 1).loops.row_parts  # which decide about bits


def test_the_model_keeps_figures_that_it_made() -> None:
    assert fitted(HERE) == HERE == cpu_target()
    small = replace(HERE, memory=HERE.memory._replace(second_cache_bytes=64 << 10))
    assert fitted(small).products.panel_terms < 1024


def network(x: Any, w: Any, b: Any, queries: Any) -> Any:
    y = nnp.tanh(x @ w + b)
    shares = nnp.exp(y - y.max(axis=1, keepdims=True))
    solved = nnp.linalg.solve_triangular(queries @ queries.T + 50 * nnp.eye(40), queries, lower=True)
    attended = nn.dot_product_attention(queries[None, :, None], queries[None, :, None], queries[None, :, None])
    return shares / shares.sum(axis=1, keepdims=True), nnp.sort(y, axis=1), y.sum(axis=0), solved, attended


def test_programs_for_a_core_are_right(core: Core) -> None:
    machine = machine_of(core)
    if compiler() is None or machine.vector_bytes > HERE.vector_bytes or os.environ.get("NNC_CPU"):
        pytest.skip("this processor does not run them")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((150, 1100), (1100, 90), (90,), (40, 24))]
    graph = nnc.make_graph(network)(*arrays)
    wanted = lower(graph, Options(native=False), choose_kernel).run(list(arrays))
    for found, right in zip(
        lower(graph, Options(machine=machine), choose_kernel, compiler()).run(arrays), wanted, strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=3e-5, atol=2e-4)
