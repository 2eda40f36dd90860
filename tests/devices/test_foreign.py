"""Arrays of other libraries as leaves of pytrees: in every transform, in compiled calls, loops, models, optimizers and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import tree
from nnc.base.dtypes import bfloat16
from nnc.device.dlpack import is_foreign


class Protocol:
    """An array that only speaks NumPy's protocol."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.data, dtype=dtype, copy=copy)


class Exchanged:
    """An array that only speaks DLPack."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


def of_torch(data: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(data)


def of_jax(data: Any) -> Any:
    return pytest.importorskip("jax.numpy").asarray(data)


def of_pandas(data: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.Series(data, copy=False) if data.ndim == 1 else pandas.DataFrame(data, copy=False)


OWN = [Protocol, Exchanged]
MAKERS = [*OWN, of_torch, of_jax, of_pandas]
every_kind = pytest.mark.parametrize("make", MAKERS)
shared = pytest.mark.parametrize("make", [*OWN, of_torch])


def values(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) / 4


# -- compiled calls ----------------------------------------------------------------------------------------------------


@every_kind
def test_a_compiled_function_is_traced_once_for_arrays_of_another_library(make):
    f = nnc.compile(lambda s: s * 2)
    for k in range(5):
        data = values(3) + k
        assert f(make(data)).tolist() == (data * 2).tolist()
    assert f.cache_info().misses == 1


@shared
def test_a_compiled_call_sees_later_writes_to_the_array(make):
    f, data = nnc.compile(lambda s: s * 2), values(3)
    x = make(data)
    for _ in range(5):
        assert f(x).tolist() == (data * 2).tolist()
        data += 1


@shared
def test_the_result_of_a_compiled_function_shares_no_memory_with_the_argument(make):
    data = values(3)
    same = nnc.compile(lambda s: s)(make(data))
    data[0] = 100
    assert same.tolist() == values(3).tolist()


def test_numpy_nnc_and_foreign_arrays_of_one_spec_share_a_program():
    f = nnc.compile(lambda tree: tree["a"] + tree["b"][0])
    data = values(2, 3)
    for a in (data, nnc.asarray(data), Protocol(data), Exchanged(data)):
        for b in (Exchanged(data), data, nnc.asarray(data)):
            for _ in range(3):
                assert f({"a": a, "b": [b]}).tolist() == (data * 2).tolist()
    assert f.cache_info().misses == 1


def test_a_call_with_another_shape_or_dtype_is_traced_anew():
    f = nnc.compile(lambda s: s + s)
    for data in (values(3), values(4), values(3).astype("int32"), values(3).astype(np.float64)):
        for _ in range(3):
            out = f(Exchanged(data))
            assert (out.dtype, out.tolist()) == (data.dtype, (data + data).tolist())
    assert f.cache_info().misses == 4


def test_settings_and_numbers_may_follow_a_foreign_array_at_its_place():
    f = nnc.compile(lambda x: "text" if isinstance(x, str) else x * 2)
    for _ in range(4):
        assert f(Protocol(values(2))).tolist() == [0.5, 1]
    assert f("word") == "text" and f(3.0) == 6 and f(Protocol(values(2))).tolist() == [0.5, 1]


def test_a_static_argument_stays_the_object_that_it_is():
    x = Protocol(values(2))
    f = nnc.compile(lambda s, y: y * 2 if s is x else y, static_argnums=0)
    assert f(x, 1.0) == 2 and f(Protocol(values(2)), 1.0) == 1


def test_a_donated_array_of_another_library_is_not_written_to():
    data = values(4)
    f = nnc.compile(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        assert f(Exchanged(data)).tolist() == (values(4) + 1).tolist()
    assert data.tolist() == values(4).tolist()


def test_a_lowered_function_and_keyword_arguments_take_foreign_arrays():
    f = nnc.compile(lambda x, *, y: x + y)
    for _ in range(3):
        assert f(Protocol(values(2)), y=Exchanged(values(2))).tolist() == [0.5, 1]
    program = f.lower(Protocol(values(2)), y=Exchanged(values(2))).compile()
    assert program(Exchanged(values(2)), y=Protocol(values(2))).tolist() == [0.5, 1]
    with nnc.debug.eager():
        assert f(Protocol(values(2)), y=Exchanged(values(2))).tolist() == [0.5, 1]


# -- captured arrays ---------------------------------------------------------------------------------------------------


@shared
def test_a_captured_array_is_seen_as_it_is_at_each_call(make):
    data = values(3)
    x = make(data)
    f = nnc.compile(lambda y: y * x)
    for _ in range(4):
        assert f(np.ones(3, np.float32)).tolist() == data.tolist()
        data += 1
    assert f.cache_info().misses <= 4


@pytest.mark.parametrize("make", OWN)
def test_elements_that_python_code_reads_of_a_captured_array_lead_to_a_new_trace(make):
    data = values(3)
    x = make(data)

    @nnc.compile
    def f(y):
        return y + 1 if np.asarray(nnc.asarray(x))[0] > 1 else y - 1

    assert [f(0.0).item() for _ in range(3)] == [-1, -1, -1]
    data += 10
    assert [f(0.0).item() for _ in range(3)] == [1, 1, 1]


def test_elements_that_are_copied_when_they_are_read_are_compared():
    class Copying(Protocol):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.array(self.data, dtype=dtype, copy=True)

    x = Copying(values(3))
    f = nnc.compile(lambda y: y * x)
    assert [f(np.ones(3, np.float32)).tolist() for _ in range(3)] == [values(3).tolist()] * 3
    x.data += 1
    assert [f(np.ones(3, np.float32)).tolist() for _ in range(3)] == [(values(3) + 1).tolist()] * 3


# -- transforms --------------------------------------------------------------------------------------------------------


def loss(w: Any, x: Any) -> Any:
    return ((x @ w) ** 2).sum()


@every_kind
def test_derivatives_take_arrays_of_another_library(make):
    w, x = values(3), values(2, 3)
    expected = 2 * x.T @ (x @ w)
    for found in (
        nnc.grad(loss)(make(w), make(x)),
        nnc.grad(loss)(w, make(x)),
        nnc.value_and_grad(loss)(make(w), make(x))[1],
        nnc.grad(lambda x, w: loss(w, x), argnums=-1)(make(x), make(w)),
        nnc.vjp(loss, make(w), make(x))[1](make(np.ones((), np.float32)) if make in OWN else 1.0)[0],
        nnc.jacrev(loss)(make(w), make(x)),
        nnc.jacfwd(loss)(make(w), make(x)),
        nnc.compile(nnc.grad(loss))(make(w), make(x)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    _, tangent = nnc.jvp(lambda w: loss(w, x), (make(w),), (make(np.ones(3, np.float32)),))
    np.testing.assert_allclose(tangent, expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(nnc.linearize(loss, make(w), make(x))[1](make(w), make(x * 0)), expected @ w, rtol=1e-6)


def test_an_argument_that_is_not_differentiated_is_an_array_of_nnc_in_the_function():
    seen = []

    def f(w, batch, *, scale):
        seen.extend((type(batch["x"]), type(scale), batch["name"]))
        return w * batch["x"].at[0].get() * scale.reshape(())

    gradient = nnc.grad(f)(2.0, {"x": Protocol(values(2)), "name": "first"}, scale=Exchanged(values(1)))
    assert gradient == 0.0625 and seen == [nnc.Array, nnc.Array, "first"]


@every_kind
def test_vmap_maps_over_arrays_of_another_library(make):
    x = values(4, 3)
    assert nnc.vmap(lambda row: row.sum())(make(x)).tolist() == x.sum(1).tolist()
    pairs = nnc.vmap(lambda row, y: row + y, in_axes=(1, None))(make(x), make(values(4)))
    assert pairs.tolist() == (x.T + values(4)).tolist()


@every_kind
def test_loops_and_branches_take_arrays_of_another_library(make):
    x, c = values(4, 3), values(3)
    carry, ys = nnc.scan(lambda c, row: (c + row, c * 2), make(c), make(x))
    assert carry.tolist() == (c + x.sum(0)).tolist() and ys[0].tolist() == (c * 2).tolist()
    unrolled, _ = nnc.scan(lambda c, row: (c + row, None), make(c), make(x), unroll=2)
    assert unrolled.tolist() == carry.tolist()
    assert nnc.map(lambda row: row * 2, make(x)).tolist() == (x * 2).tolist()
    assert nnc.while_loop(lambda c: c[0] < 3, lambda c: c * 2, make(c)).tolist() == (c * 16).tolist()
    assert nnc.fori_loop(0, 2, lambda i, c: c * 2, make(c)).tolist() == (c * 4).tolist()
    assert nnc.cond(True, lambda c: c * 2, lambda c: c, make(c)).tolist() == (c * 2).tolist()
    assert nnc.switch(1, [lambda c: c, lambda c: c + 1], make(c)).tolist() == (c + 1).tolist()
    assert nnc.associative_scan(nnp.add, make(c)).tolist() == np.cumsum(c).tolist()


@every_kind
def test_shapes_and_graphs_are_found_of_arrays_of_another_library(make):
    x = make(values(2, 3))
    assert nnc.eval_shape(lambda x: x.T, x) == nnc.ShapeDtypeStruct((3, 2), "float32")
    assert nnc.make_graph(lambda x: x + 1)(x).input_specs[0].shape == (2, 3)
    assert nnc.stop_gradient({"x": x})["x"].shape == (2, 3)


@every_kind
def test_operators_with_an_array_of_another_library_on_either_side_are_nncs(make):
    x, y = nnc.asarray(values(3)), make(values(3))
    assert (x + y).tolist() == (x * 2).tolist() and (x == y).tolist() == [True] * 3
    if make in OWN:  # without operators of its own
        return
    for result in (y + x, y * x, y - x, y / x):
        assert isinstance(result, nnc.Array)
    assert nnc.grad(lambda x: nnp.sum(y * x))(x).tolist() == values(3).tolist()
    assert nnc.compile(lambda x: y - x)(x).tolist() == [0, 0, 0]


def test_functions_with_rules_of_their_own_take_foreign_arrays():
    @nnc.custom_vjp
    def f(x):
        return nnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 10,))
    x = Protocol(values(2))
    assert f(x).shape == (2,)
    assert nnc.grad(lambda x: nnp.sum(f(x)))(x).tolist() == [10, 10]
    assert nnc.grad(nnc.checkpoint(lambda x: nnp.sum(x * 2)))(x).tolist() == [2, 2]


def test_lists_of_foreign_arrays_are_stacked():
    rows = [Exchanged(values(2)), Protocol(values(2)), [1, 2]]
    assert nnp.asarray(rows).tolist() == [[0.25, 0.5], [0.25, 0.5], [1, 2]]
    assert nnp.concatenate(rows).shape == (6,)
    assert nnp.concatenate(Protocol(values(2, 3))).shape == (6,)


@every_kind
def test_arrays_of_another_library_index(make):
    x, rows, mask = nnp.arange(4.0), make(np.array([2, 0])), make(np.array([True, False, False, True]))
    for run in (lambda f: f(), lambda f: nnc.compile(f)()):
        assert run(lambda: x[rows]).tolist() == run(lambda: nnp.take(x, rows)).tolist() == [2, 0]
        assert run(lambda: x[mask]).tolist() == [0, 3]
        assert run(lambda: x.at[rows].set(make(np.array([7, 8], np.float32)))).tolist() == [8, 1, 7, 3]
        assert run(lambda: x.at[mask].add(1)).tolist() == [1, 1, 2, 4]


# -- models, optimizers, data, files, dynamic graphs -------------------------------------------------------------------


@every_kind
def test_layers_and_optimizers_take_arrays_of_another_library(make):
    layer = nnc.nn.Linear(3, 2, key=nnc.random.key(0))
    x = values(4, 3)
    np.testing.assert_array_equal(layer(make(x)), layer(x))
    optimizer = nnc.optim.adamw(0.1)
    plain, other = {"w": values(3)}, {"w": make(values(3))}
    state = optimizer.init(other)
    updates, state = optimizer.update({"w": make(values(3))}, state, other)
    expected, _ = optimizer.update(plain, optimizer.init(plain), plain)
    np.testing.assert_array_equal(updates["w"], expected["w"])
    moved = nnc.optim.apply_updates(other, updates)
    np.testing.assert_array_equal(moved["w"], nnc.optim.apply_updates(plain, expected)["w"])


@dataclass(frozen=True)
class Model:
    weight: Any
    name: str = "model"


@pytest.mark.parametrize("make", OWN)
def test_a_field_of_a_model_that_holds_a_foreign_array_is_a_child(make):
    model = Model(make(values(3)))
    assert len(tree.leaves(model)) == 1
    gradient = nnc.grad(lambda m: (m.weight**2).sum())(model)
    assert gradient.weight.tolist() == (values(3) * 2).tolist() and gradient.name == "model"


@every_kind
def test_a_data_loader_gives_batches_that_compiled_steps_take_without_new_traces(make):
    step = nnc.compile(lambda batch: batch["x"].sum() + batch["y"].sum())
    data = {"x": make(values(6, 2)), "y": make(values(6))}
    sums = [step(part).item() for part in nnc.data.batches(data, 2)]
    assert len(sums) == 3 and step.cache_info().misses == 1
    np.testing.assert_allclose(sum(sums), values(6, 2).sum() + values(6).sum())


def test_the_data_loader_of_pytorch_feeds_a_compiled_step():
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.arange(4))
    step = nnc.compile(lambda x, y: (x.sum(), y.sum()))
    found = [tuple(map(float, step(*batch))) for batch in torch.utils.data.DataLoader(rows, batch_size=2)]
    assert found == [(6, 1), (22, 5)] and step.cache_info().misses == 1


@every_kind
def test_files_hold_arrays_of_another_library(make, tmp_path):
    path = tmp_path / "tree.safetensors"
    nnc.io.save(path, {"x": make(values(3)), "n": 1})
    assert nnc.io.load(path)["x"].tolist() == values(3).tolist()
    assert nnc.io.load(path, like={"x": make(values(3)), "n": 1})["x"].tolist() == values(3).tolist()


@every_kind
def test_dynamic_graphs_take_arrays_of_another_library_and_keep_a_copy(make):
    g, data = nnc.DynamicGraph(), values(3)
    x = g.variable(make(data))
    if make is not of_jax:
        data[:] = 100
    y = nnp.sum(x * make(values(3)))
    g.backward(y)
    assert x.grad.tolist() == values(3).tolist() and y.item() == (values(3) ** 2).sum()


# -- bfloat16, classes -------------------------------------------------------------------------------------------------


def test_bfloat16_of_pytorch_is_read_in_place():
    torch = pytest.importorskip("torch")
    t = torch.ones(3, dtype=torch.bfloat16)
    f = nnc.compile(lambda x: x * 2)
    for _ in range(3):
        out = f({"x": t}["x"])
        assert out.dtype == bfloat16 and out.tolist() == (t.float() * 2).tolist()
        t += 1
    assert nnc.grad(lambda x: nnp.sum(x * x))(t).dtype == bfloat16
    assert nnp.result_type(t, 1.0) == bfloat16


def test_containers_and_classes_are_no_foreign_arrays():
    @dataclass
    class Table:
        x: Any

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.asarray(self.x)

    for kind in (int, str, list, type, np.ndarray, np.float64, nnc.Array, nnc.ShapeDtypeStruct, Table):
        assert not is_foreign(kind)
    assert is_foreign(Protocol) and is_foreign(Exchanged) and not is_foreign(type(Protocol))
    assert nnc.compile(lambda t: Table(t.x * 2))(Table(values(2))).x.tolist() == [0.5, 1]


def test_a_column_named_as_an_attribute_of_ours_does_not_hide_that_a_table_is_one():
    class Columns(Protocol):
        def __getattr__(self, name: str) -> Any:
            if name == "spec":
                return "a column"
            raise AttributeError(name)

    assert nnc.compile(lambda x: x * 2)(Columns(values(2))).tolist() == [0.5, 1]
    assert nnp.sin(Columns(np.zeros(2))).tolist() == [0, 0]


def test_a_settings_object_with_a_field_named_spec_is_a_container():
    @dataclass
    class Task:
        spec: str
        x: Any

    assert nnc.compile(lambda task: task.x * 2)(Task("fast", values(2))).tolist() == [0.5, 1]
