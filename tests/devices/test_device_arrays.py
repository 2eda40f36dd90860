"""Arrays on a device as users meet them: the place of work, the values that come back, and the errors."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.base.context import LOCATORS
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    OutOfBoundsError,
    OutOfMemoryError,
    UnsupportedError,
)
from tests.devices.wrong import new_device

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def there(x: Any = X) -> Any:
    return nnc.device_put(x, "sim:0")


@pytest.fixture
def other() -> Any:
    return nnc.device_put(X, "sim:1")


# -- values ------------------------------------------------------------------------------------------------------------


def test_the_host_sees_the_elements_wherever_it_asks() -> None:
    x = there()
    assert x.device == "sim:0" and isinstance(x, nnc.Array)
    assert repr(x + 1).endswith("dtype=float32, device=sim:0)") and "[1., 2., 3.]" in repr(x + 1)
    assert float(x.sum()) == 15 and int(x[1, 2]) == 5 and bool((x >= 0).all()) and x.tolist() == X.tolist()
    assert np.array_equal(np.asarray(x), X) and not np.asarray(x).flags.writeable
    assert f"{x.max():.1f}" == "5.0" and list(map(float, x[0])) == [0, 1, 2]


def test_copies_and_pickles_hold_the_elements() -> None:
    x = there() * 2
    assert copy.copy(x).device == copy.deepcopy(x).device == "sim:0"
    back = pickle.loads(pickle.dumps(x))
    assert back.device == "cpu" and np.array_equal(back, X * 2)


def test_put_goes_from_any_device_to_any_and_leaves_arrays_that_are_there(other: Any) -> None:
    x = there()
    assert nnc.device_put(x, "sim:0") is x
    for array in (x.to_device("cpu"), nnc.device_put(other, "cpu"), nnc.device_put(x, "sim:1").to_device("cpu")):
        assert array.device == "cpu" and np.array_equal(array, X)
    tree = nnc.device_put({"a": X, "b": [1.0, nnp.ones(2)], "c": None}, "sim:0")
    assert tree["a"].device == tree["b"][1].device == "sim:0" and tree["c"] is None
    assert tree["b"][0].weak


def test_put_goes_to_the_default_device_wherever_the_array_is(other: Any) -> None:
    host = nnp.asarray(X)
    with nnc.default_device("sim:0"):
        assert [nnc.device_put(x).device for x in (X, host, other, there())] == ["sim:0"] * 4
        assert nnc.device_put(host, "cpu") is host
        with nnc.debug.transfers("error"):
            assert nnc.device_put(X, "sim:1").device == "sim:1" and nnc.device_put(X, "cpu").device == "cpu"
    assert nnc.device_put(there()).device == "cpu"


def test_the_caller_may_write_to_a_numpy_array_that_was_sent() -> None:
    x = X.copy()
    array = there(x)
    x[...] = -1
    assert np.array_equal(array, X)


@pytest.mark.parametrize("nbytes", [0, 1, (8 << 20) - 1, (8 << 20) + 1, 40 << 20])
def test_arrays_of_every_size_are_sent_whole(nbytes: int) -> None:
    x = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)
    assert np.array_equal(there(x), x) and np.array_equal(there(x[::-1]), x[::-1])


def test_arrays_are_sent_without_waiting_for_queued_work_and_their_memory_is_used_again() -> None:
    device, name = new_device()
    step, home = nnc.compile(lambda w, x: w + x.sum()), device.stream.number
    for seed in range(5):
        device.queues.reseed(seed)
        w, addresses, behind = nnc.device_put(np.float32(0), name), set(), 0
        for i in range(40):  # the host waits for nothing
            x = nnc.device_put(X + i, name)
            behind += device.sending.clock.get(home, 0) == device.stream.clock.get(home, 0)
            addresses.add(x.memory.block.address)
            w = step(w, x)
        assert behind <= 1 and len(addresses) < 20
        assert float(w) == sum(float((X + i).sum()) for i in range(40))


def test_waiting_returns_the_tree() -> None:
    tree = {"x": there() + 1, "y": nnp.ones(2), "z": 3}
    assert nnc.block_until_ready(tree) is tree


# -- where work runs ---------------------------------------------------------------------------------------------------


def test_work_runs_where_its_arrays_are_and_numbers_and_numpy_arrays_follow() -> None:
    x = there()
    for result in (x + 1, 1 - x, x * X, X @ x.T, nnp.where(x > 2, x, 0.0), nnp.concatenate([x, X]), x.at[0].set(7)):
        assert result.device == "sim:0"
    assert (x + nnp.asarray(1.5)).device == "sim:0"  # an array of the CPU without axes
    assert nnp.triu(x).device == nnp.linalg.svd(x)[1].device == "sim:0"


@pytest.mark.parametrize(
    "make",
    [
        lambda: nnp.zeros(3), lambda: nnp.full((2,), 7), lambda: nnp.arange(3), lambda: nnp.arange(1, 4, 0.5), lambda: nnp.eye(3),
        lambda: nnp.linspace(0, 1, 4), lambda: nnc.asarray([1, 2]), lambda: nnp.asarray(X), lambda: nnp.array(X),
        lambda: nnp.tri(3), lambda: nnp.fft.fftfreq(4), lambda: nnc.random.normal(nnc.random.key(0), (3,)),
        lambda: nnp.hanning(4), lambda: nnp.tril_indices(3)[0],
    ],
)  # fmt: skip
def test_new_arrays_are_made_on_the_default_device(make: Callable[[], Any]) -> None:
    with nnc.default_device("sim:0"):
        x = make()
    assert x.device == "sim:0"
    assert make().device == "cpu" and np.array_equal(x, make())


def test_a_device_argument_wins_over_the_default() -> None:
    with nnc.default_device("sim:0"):
        assert nnp.zeros(2, device="cpu").device == nnc.asarray(X, device="cpu").device == "cpu"
        assert (nnc.asarray(X, device="cpu") + 1).device == "cpu"  # arrays stay where they are
    assert nnp.ones(2, device="sim:0").device == nnp.zeros_like(X, device="sim:0").device == "sim:0"
    assert nnp.astype(there(), "float64", device="cpu").device == nnp.ones_like(there(), device="cpu").device == "cpu"
    assert nnc.asarray(there()).device == nnc.asarray(there(), "float64").device == "sim:0"


def test_random_numbers_are_drawn_where_their_key_is() -> None:
    key = nnc.random.key(7)
    with nnc.debug.transfers("error"):
        found = nnc.random.normal(there(key), (3,))
        split = nnc.random.split(nnc.device_put(key, "sim:0"))
        rest = nnc.map(lambda key: nnc.random.uniform(key, (2,)), split)
    assert found.device == rest.device == "sim:0"
    assert np.array_equal(found, nnc.random.normal(key, (3,)))
    assert np.array_equal(rest, nnc.map(lambda key: nnc.random.uniform(key, (2,)), nnc.random.split(key)))


def test_a_tensor_of_another_library_follows() -> None:
    torch = pytest.importorskip("torch")
    assert (there() + torch.ones(2, 3)).device == "sim:0"


def test_transforms_run_where_their_arguments_are() -> None:
    x = there()

    def f(x: Any) -> Any:
        return nnp.sum(nnp.tanh(x @ nnp.ones((3, 2))) ** 2)

    for transform in (nnc.grad(f), nnc.hessian(f), nnc.vmap(f), nnc.jacrev(f), lambda x: nnc.jvp(f, (x,), (x,))[1]):
        found, wanted = transform(x), transform(X)
        assert found.device == "sim:0"
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nnc.grad(lambda w: nnp.sum(w * x))(there()), X)  # x is captured


# -- compiled functions ------------------------------------------------------------------------------------------------


def test_a_compiled_function_runs_where_its_arguments_are_or_where_it_is_told() -> None:
    f = nnc.compile(lambda x, y: (x + y, {"y": y}))
    assert f(there(), X)[0].device == "sim:0" and f(X, X)[0].device == "cpu" and f.cache_info().size == 2
    assert f(there(), 2.0)[1]["y"].device == "sim:0"
    g = nnc.compile(lambda x: x * 2, device="sim:0")
    assert g(X).device == g(nnp.asarray(X)).device == g(there()).device == "sim:0"
    with nnc.default_device("sim:0"):
        assert f(X, X)[0].device == "sim:0"
    lowered = f.lower(there(), X).compile()
    assert lowered(there(), X)[0].device == "sim:0"
    assert lowered(X, X)[0].device == "sim:0"  # host arrays are sent to where it was lowered for
    with pytest.raises(ArgumentTypeError, match="lowered for other arguments"):
        lowered(X, X[0])


def test_a_compiled_function_keeps_no_argument_and_takes_the_fast_path_for_the_next_one() -> None:
    f = nnc.compile(lambda tree, y: tree["x"] * y)
    arrays = [there(X + i) for i in range(6)]
    before = [sys.getrefcount(x) for x in arrays]
    for x in arrays:
        assert np.array_equal(f({"x": x}, arrays[0]), np.asarray(x) * X)
    del x
    assert [sys.getrefcount(x) for x in arrays] == before
    fast_path = f._fast_path
    assert fast_path is not None
    for x in arrays:
        assert fast_path.run(({"x": x}, x), {}) is not NotImplemented
    wrong = (
        there(X.astype(np.float64)),
        X,
        nnc.asarray(X),
        nnc.device_put(X, "sim:1"),
        there(X[:1]),
        there(1.0).as_weak(),
    )
    assert all(fast_path.run(({"x": x}, arrays[0]), {}) is NotImplemented for x in wrong)


def test_captured_arrays_are_sent_once_and_results_may_be_arguments_or_parts() -> None:
    w = nnp.asarray(X)
    f = nnc.compile(lambda x: (x, x[0], x @ w.T, x))
    a, b, c, d = f(there())
    assert [y.device for y in (a, b, c, d)] == ["sim:0"] * 4
    assert np.array_equal(a, X) and np.array_equal(b, X[0]) and np.array_equal(c, X @ X.T) and np.array_equal(d, X)


def test_donated_arrays_are_used_up_and_shared_ones_copied() -> None:
    f = nnc.compile(lambda x: x + 1, donate_argnums=0)
    x = there() * 1
    address = x.memory.block.address
    y = f(x)
    assert y.memory.block.address == address and x.is_deleted() and np.array_equal(y, X + 1)
    shared = copy.copy(y)
    z = f(y)
    assert np.array_equal(shared, X + 1) and np.array_equal(z, X + 2)
    with pytest.raises(ArgumentTypeError, match="donated"):
        f(y)
    with pytest.raises(ArgumentTypeError, match="donated"):
        y + 1


def test_a_donated_array_that_the_host_has_read_gets_new_elements() -> None:
    f = nnc.compile(lambda x: x + 1, donate_argnums=0)
    x = there() * 1
    for i in range(4):
        seen = np.asarray(x)
        assert np.array_equal(seen, X + i)
        x = f(x)
        assert np.array_equal(seen, X + i)


def test_programs_of_the_cpu_run_there_where_another_device_is_the_default() -> None:
    seen = list[str]()

    def f(x: Any) -> Any:
        nnc.debug.callback(lambda y: seen.extend([y.device, (y + 1).device, nnp.ones(2).device]), x)
        return x * 2

    x = nnp.asarray(X)
    with nnc.default_device("sim:0"):
        for _ in range(4):
            assert nnc.compile(f, device="cpu")(X).device == nnc.compile(f)(x).device == "cpu"
    assert set(seen) == {"cpu"}


def test_a_training_loop_on_a_device_ends_with_the_weights_of_the_cpu() -> None:
    model = nn.MLP(3, 2, 8, 1, key=nnc.random.key(0))
    optimizer = optim.adam(1e-2)
    labels = np.array([0, 1])

    @nnc.compile(donate_argnums=(0, 1))
    def step(model: Any, state: Any, x: Any, labels: Any) -> Any:
        loss, grads = nnc.value_and_grad(lambda m: nnp.mean(nn.softmax_cross_entropy(m(x), labels)))(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss

    def train(model: Any) -> list[bytes]:
        state = optimizer.init(model)
        for _ in range(5):
            model, state, _ = step(model, state, X, labels)
        return [np.asarray(leaf).tobytes() for leaf in nnc.tree.leaves(model)]

    assert train(there(model)) == train(model)


# -- errors ------------------------------------------------------------------------------------------------------------

MIXED: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: nnp.where(x > 0, x, y),
    lambda x, y: nnp.concatenate([x, y]),
    lambda x, y: x.at[0].set(y[0]),
    lambda x, y: nnc.compile(lambda a, b: a @ b.T)(x, y),
    lambda x, y: nnc.grad(lambda a: nnp.sum(a * y))(x),
    lambda x, y: nnc.compile(lambda a: a + y)(x),
    lambda x, y: nnc.compile(lambda a: a, device="sim:0")(y),
    lambda x, y: nnc.scan(lambda c, row: (c + row, c), x[0], y),
]


@pytest.mark.parametrize("use", MIXED)
def test_arrays_on_two_devices_are_an_error_with_both_and_the_fix(use: Callable[[Any, Any], Any], other: Any) -> None:
    with pytest.raises(DeviceError, match=r"sim:0[\s\S]*sim:1[\s\S]*Fix: [\s\S]*device|sim:1[\s\S]*sim:0[\s\S]*Fix: "):
        use(there(), other)


def test_arrays_with_axes_on_the_cpu_are_on_a_device_too() -> None:
    x = there()
    with pytest.raises(
        DeviceError, match=r"operands are on sim:0 and on cpu[\s\S]*test_device_arrays[\s\S]*device_put\(x, 'sim:0'\)"
    ):
        x + nnp.ones((2, 3))
    with pytest.raises(DeviceError, match=r"arguments are on cpu and on sim:0"):
        nnc.compile(lambda x, y: x + y)(x, nnp.ones((2, 3)))
    with pytest.raises(DeviceError, match="captures an array on sim:0"):
        nnc.compile(lambda y: x + y)(X)


@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_an_index_out_of_range_is_told_at_the_first_wait_with_the_line(run: Any, monkeypatch: Any) -> None:
    pick = run(lambda x, i: nnp.take(x, i, axis=0))
    x, index = there(), there(np.array([5]))
    result = pick(x, index)  # nothing is known yet
    for read in (lambda: np.asarray(result), lambda: float(result.sum())):
        with pytest.raises(OutOfBoundsError, match=r"index 5 is out of range for axis 0[\s\S]*test_device_arrays.py"):
            read()
    assert np.array_equal(pick(x, there(np.array([1]))), X[1:])  # nothing else is lost
    for yes in ("1", "true"):
        monkeypatch.setenv("NNC_SYNC", yes)
        with pytest.raises(OutOfBoundsError):
            pick(x, index)
    monkeypatch.setenv("NNC_SYNC", "maybe")
    with pytest.raises(ArgumentError, match="NNC_SYNC: 'maybe' is neither yes nor no"):
        pick(x, index)


def test_no_memory_names_the_largest_tensors_and_loses_nothing() -> None:
    _, place = new_device(capacity=1 << 20)
    x = nnc.device_put(np.ones(200_000, np.float32), place)
    with pytest.raises(
        OutOfMemoryError, match=place + r": 800,000 bytes do not fit[\s\S]*float32\[200000\] \(800,000 bytes"
    ):
        x + 1
    assert float(x.sum()) == 200_000
    del x
    assert float(nnc.device_put(np.ones(200_000, np.float32), place).sum()) == 200_000


def test_a_lost_device_and_names_of_none_are_told() -> None:
    device, place = new_device()
    x = nnc.device_put(X, place)
    device.unplug()
    for use in (lambda: x + 1, lambda: print(x), lambda: nnc.device_put(X, place)):
        with pytest.raises(DeviceError, match=f"{place} does not answer any more"):
            use()
    for name in ("cuda:9", "sim", "sim:x", "tpu:0", ""):
        with pytest.raises(UnsupportedError, match="there is no device"):
            nnc.device_put(X, name)


def test_callbacks_and_checks_see_values_at_once(capsys: Any) -> None:
    x, seen = there(), list[Any]()
    nnc.debug.print("{}", x[0])
    nnc.compile(lambda x: nnc.debug.callback(lambda y: seen.append(np.asarray(y)), x) or x)(x)
    assert "[0. 1. 2.]" in capsys.readouterr().out and len(seen) == 1
    with nnc.debug.check_finite(), pytest.raises(nnc.errors.NotFiniteError):
        nnp.log(x - 10)


def test_implicit_copies_are_found_and_explicit_ones_are_none(other: Any) -> None:
    x = there()
    f = nnc.compile(lambda x, y: x + y)
    implicit: list[Callable[[], Any]] = [
        lambda: x + X, lambda: f(x, X), lambda: np.asarray(x), lambda: print(x), lambda: bool(x.sum() > 0), lambda: x @ X.T
    ]  # fmt: skip
    for use in implicit:
        with nnc.debug.transfers("error"), pytest.raises(DeviceError, match="bytes .* are copied from"):
            use()
        with nnc.debug.transfers("warn"), pytest.warns(nnc.debug.TransferWarning, match="Fix: copy the array once"):
            use()
    with nnc.debug.transfers("error"):
        assert nnc.compile(lambda x: x * 2)(x * 1).device == "sim:0"  # nor are arguments of a first call
        assert f(x + 1, x * 2.5).to_device("cpu").device == "cpu"
        assert nnc.device_put(other, "sim:0").device == nnp.zeros(2, device="sim:0").device == "sim:0"
        nnc.block_until_ready(x)


def test_the_place_of_arguments_is_found_in_time_also_in_values_that_many_ways_lead_to() -> None:
    node: Any = (there(),)
    for _ in range(60):
        node = (node, node)  # 2 ** 60 ways
    with LOCATORS[0]((node,), {}) as context:
        assert context.device is there().owner
