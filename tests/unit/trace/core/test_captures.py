"""Values that a compiled function takes from outside: a change leads to a new trace and never to a stale result."""

from __future__ import annotations

import collections
import dataclasses
import functools
import time
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.trace.core.captures import take_snapshot
from nnc.trace.core.reads import reads_of

ONE = nnp.ones(2)
scale: Any = 2.0
settings: dict[str, Any] = {"scale": 2.0}
module = types.ModuleType("user_settings")
module.scale = 2.0  # type: ignore[attr-defined]


class Config:
    scale = 2.0


def helper(x: Any) -> Any:
    return x * scale


@pytest.fixture(autouse=True)
def fresh_globals() -> Any:
    old = {name: globals()[name] for name in ("scale", "helper")}
    yield
    globals().update(old)
    settings.clear()
    settings["scale"] = 2.0
    module.scale = 2.0  # type: ignore[attr-defined]
    Config.scale = 2.0


def traces(f: Any) -> int:
    return int(f.cache_info().misses)


def check_notices(fun: Callable[..., Any], change: Callable[[], None], *args: Any, mention: str = "") -> None:
    """Checks that the result has a factor 2 before the change, and a factor 3 after it, with one trace each."""
    f = nnc.compile(fun)
    args = args or (ONE,)
    assert [float(f(*args)[0]) for _ in range(3)] == [2.0] * 3
    assert traces(f) == 1
    change()
    assert [float(f(*args)[0]) for _ in range(3)] == [3.0] * 3
    assert traces(f) == 2
    assert nnc.debug.explain(f).endswith("reused a program")
    g = nnc.compile(fun)
    assert float(g(*args)[0]) == 3


def set_global(**values: Any) -> Callable[[], None]:
    return lambda: globals().update(values)


def test_a_changed_closure_cell_retraces_and_is_explained() -> None:
    factor = 2.0

    def set_it() -> None:
        nonlocal factor
        factor = 3.0

    f = nnc.compile(lambda x: x * factor)
    f(ONE)
    set_it()
    assert float(f(ONE)[0]) == 3
    assert nnc.debug.explain(f) == "<lambda>: the last call traced, because captured factor changed from 2.0 to 3.0"


def test_an_argument_that_an_inner_function_reads_is_no_global_of_its_name() -> None:
    traces = []

    @nnc.compile
    def step(x: Any, scale: Any) -> Any:
        traces.append(1)
        return nnc.grad(lambda x: (x * scale).sum())(x) + (lambda: (lambda: scale * helper(0.0))())()

    results = []
    for value in (2.0, 3.0):
        globals()["scale"] = value
        results.append(step(ONE, nnp.asarray(5.0)).tolist())
    assert results == [[5, 5], [5, 5]] and len(traces) == 2, "helper reads the global"
    traces.clear()

    @nnc.compile
    def plain(x: Any, scale: Any) -> Any:
        traces.append(1)
        return nnc.grad(lambda x: (x * scale).sum())(x)

    for value in (2.0, 3.0):
        globals()["scale"] = value
        assert plain(ONE, nnp.asarray(5.0)).tolist() == [5, 5]
    assert len(traces) == 1


def test_a_changed_global_scalar_retraces() -> None:
    check_notices(lambda x: x * scale, set_global(scale=3.0))


def test_a_global_that_turns_from_int_into_an_equal_float_retraces() -> None:
    globals()["scale"] = 2
    f = nnc.compile(lambda x: x * scale)
    whole = nnp.asarray([1])
    assert f(whole).dtype == nnp.int64
    globals()["scale"] = 2.0
    assert f(whole).dtype == nnp.float32


def test_minus_zero_is_another_captured_value_than_zero() -> None:
    globals()["scale"] = 0.0
    f = nnc.compile(lambda x: x / scale)
    assert float(f(ONE)[0]) == np.inf
    globals()["scale"] = -0.0
    assert float(f(ONE)[0]) == -np.inf


def test_nan_is_no_change_from_nan() -> None:
    globals()["scale"] = float("nan")
    f = nnc.compile(lambda x: x * scale)
    f(ONE)
    globals()["scale"] = float("nan")
    f(ONE)
    assert traces(f) == 1


def test_a_global_with_the_name_of_a_builtin_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "max", 2.0)
    check_notices(lambda x: x * max, set_global(max=3.0))


def test_a_changed_tuple_retraces() -> None:
    globals()["scale"] = (1.0, 2.0)
    check_notices(lambda x: x * scale[1], set_global(scale=(1.0, 3.0)))


def test_a_changed_dict_entry_retraces() -> None:
    check_notices(lambda x: x * settings["scale"], lambda: settings.update(scale=3.0))


def test_another_order_of_the_keys_of_a_dict_retraces() -> None:
    weights = {"first": 1.0, "second": 1.0}

    def reorder() -> None:
        weights["first"] = weights.pop("first")

    check_notices(lambda x: x * (2.0 if next(iter(weights)) == "first" else 3.0), reorder)


def test_a_changed_list_element_retraces_and_is_named() -> None:
    factors = [[1.0], [2.0]]
    f = nnc.compile(lambda x: x * factors[1][0])
    f(ONE)
    factors[1][0] = 3.0
    assert float(f(ONE)[0]) == 3
    assert "captured factors[1][0] changed from 2.0 to 3.0" in nnc.debug.explain(f)


def test_a_longer_list_retraces() -> None:
    factors = [1.0, 1.0]
    check_notices(lambda x: sum(x * f for f in factors), lambda: factors.append(1.0))


@pytest.mark.parametrize("make", [set, collections.deque, collections.OrderedDict.fromkeys, collections.Counter])
def test_changed_containers_of_other_kinds_retrace(make: Any) -> None:
    box = make([1.0, 2.0])
    check_notices(
        lambda x: x * len(box), lambda: box.update([3.0] if isinstance(box, (set, collections.Counter)) else {3.0: None})
        if hasattr(box, "update") else box.append(3.0),
    )  # fmt: skip


def test_a_changed_object_attribute_retraces() -> None:
    config = types.SimpleNamespace(scale=2.0)

    def change() -> None:
        config.scale = 3.0

    check_notices(lambda x: x * config.scale, change)


def test_a_changed_attribute_of_an_attribute_retraces() -> None:
    config = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0))

    def change() -> None:
        config.inner.scale = 3.0

    check_notices(lambda x: x * config.inner.scale, change)


def test_an_attribute_in_a_slot_retraces() -> None:
    class Slotted:
        __slots__ = ("scale",)

    config = Slotted()
    config.scale = 2.0
    check_notices(lambda x: x * config.scale, lambda: setattr(config, "scale", 3.0))


def test_an_attribute_read_with_getattr_retraces() -> None:
    config = types.SimpleNamespace(scale=2.0)
    check_notices(lambda x: x * getattr(config, "scale"), lambda: setattr(config, "scale", 3.0))  # noqa: B009
    config.scale = 2.0
    names = ["scale"]
    check_notices(lambda x: x * getattr(config, names[0]), lambda: setattr(config, "scale", 3.0))


def test_a_changed_property_retraces() -> None:
    class Half:
        half = 1.0

        @property
        def scale(self) -> float:
            return 2 * self.half

    config = Half()
    check_notices(lambda x: x * config.scale, lambda: setattr(config, "half", 1.5))


def test_a_changed_class_attribute_retraces() -> None:
    check_notices(lambda x: x * Config.scale, lambda: setattr(Config, "scale", 3.0))


def test_a_class_attribute_that_an_object_overrides_later_retraces() -> None:
    config = Config()
    check_notices(lambda x: x * config.scale, lambda: setattr(config, "scale", 3.0))


def test_a_changed_attribute_of_a_users_module_retraces() -> None:
    check_notices(lambda x: x * module.scale, lambda: setattr(module, "scale", 3.0))


def test_a_changed_attribute_of_a_submodule_retraces() -> None:
    package = types.ModuleType("user_package")
    package.config = module  # type: ignore[attr-defined]
    check_notices(lambda x: x * package.config.scale, lambda: setattr(module, "scale", 3.0))


def test_a_changed_mutable_dataclass_retraces() -> None:
    @dataclasses.dataclass
    class Setup:
        scale: float

    setup = Setup(2.0)
    check_notices(lambda x: x * dataclasses.asdict(setup)["scale"], lambda: setattr(setup, "scale", 3.0))


def test_changed_defaults_retrace() -> None:
    def fun(x: Any, factor: float = 2.0, *, more: float = 1.0) -> Any:
        return x * factor * more

    check_notices(fun, lambda: setattr(fun, "__defaults__", (3.0,)))
    fun.__defaults__ = (2.0,)
    check_notices(fun, lambda: setattr(fun, "__kwdefaults__", {"more": 1.5}))


def test_a_changed_mutable_default_retraces() -> None:
    def fun(x: Any, factors: list[float] = [2.0]) -> Any:  # noqa: B006
        return x * factors[0]

    def change() -> None:
        fun.__defaults__[0][0] = 3.0

    f = nnc.compile(fun)
    assert float(f(ONE)[0]) == 2
    change()
    assert float(f(ONE)[0]) == 3


def test_an_attribute_of_a_function_retraces() -> None:
    def fun(x: Any) -> Any:
        return x * fun.scale  # type: ignore[attr-defined]

    fun.scale = 2.0  # type: ignore[attr-defined]
    check_notices(fun, lambda: setattr(fun, "scale", 3.0))


def test_the_global_of_a_helper_retraces() -> None:
    check_notices(lambda x: helper(x), set_global(scale=3.0))


def test_the_global_of_a_nested_function_retraces() -> None:
    def fun(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return sum([y * scale for _ in range(1)])

        return inner(x)

    check_notices(fun, set_global(scale=3.0))


def test_a_variable_of_the_function_itself_is_not_taken_for_the_global_of_its_name() -> None:
    @nnc.compile
    def step(scale: Any, x: Any) -> Any:
        helper = x * 2
        return nnc.grad(lambda w: nnp.sum(w * scale * helper))(x)

    for value in (1.0, 2.0, 3.0):
        globals()["scale"] = value  # as in `scale = step(scale, x)` in a script
        globals()["helper"] = value
        np.testing.assert_array_equal(np.asarray(step(nnp.asarray(value), ONE)), 2 * value * ONE)
    assert traces(step) == 1


def test_a_global_that_an_inner_function_declares_retraces() -> None:
    def fun(x: Any) -> Any:
        scale = 1.0

        def of_module() -> Any:
            def deeper() -> Any:
                global scale
                return scale

            return deeper()

        return (lambda y: y * scale)(x) * of_module()

    check_notices(fun, set_global(scale=3.0))


def test_a_redefined_helper_retraces() -> None:
    f = nnc.compile(lambda x: helper(x))
    f(ONE)
    globals()["helper"] = lambda x: x * 3
    assert float(f(ONE)[0]) == 3
    assert "captured helper changed from function helper to function" in nnc.debug.explain(f)


def test_the_attributes_of_a_method_s_object_retrace() -> None:
    class Model:
        def __init__(self) -> None:
            self.scale = 2.0

        def plain(self, x: Any) -> Any:
            return self.twice(x)

        def twice(self, x: Any) -> Any:
            return x * self.scale

        compiled = nnc.compile(plain)

    model = Model()
    check_notices(model.plain, lambda: setattr(model, "scale", 3.0))
    model.scale = 2.0
    assert float(model.compiled(ONE)[0]) == 2
    model.scale = 3.0
    assert float(model.compiled(ONE)[0]) == 3
    assert "captured self.scale changed from 2.0 to 3.0" in nnc.debug.explain(model.compiled)


def test_a_callable_object_s_attributes_retrace() -> None:
    class Scale:
        factor = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.factor

    for transform in (lambda f: f, lambda f: nnc.grad(lambda x: f(x).sum()), nnc.vmap):
        layer = Scale()
        check_notices(transform(layer), functools.partial(setattr, layer, "factor", 3.0))


def test_layers_in_a_captured_list_retrace() -> None:
    class Layer:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __call__(self, x: Any) -> Any:
            return x * self.factor

    layers = [Layer(1.0), Layer(2.0)]

    def fun(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    check_notices(fun, lambda: setattr(layers[1], "factor", 3.0))


def test_functions_in_a_captured_namedtuple_retrace() -> None:
    class Pair(NamedTuple):
        first: Callable[[Any], Any]
        second: Callable[[Any], Any]

    pair = Pair(lambda x: x, lambda x: x * scale)
    check_notices(lambda x: pair.second(pair.first(x)), set_global(scale=3.0))


def test_a_schedule_within_a_captured_optimizer_retraces() -> None:
    optimizer = nnc.optim.chain(nnc.optim.identity(), nnc.optim.sgd(lambda step: -scale))
    state = optimizer.init(ONE)
    check_notices(lambda g: optimizer.update(g, state)[0], set_global(scale=3.0))


def test_functions_given_as_arguments_are_looked_through() -> None:
    check_notices(lambda f, x: f(x), set_global(scale=3.0), lambda x: x * scale, ONE)


def test_functions_in_settings_of_dataclass_arguments_are_looked_through() -> None:
    @dataclasses.dataclass(frozen=True)
    class Layer:
        w: Any
        act: Callable[[Any], Any]

    check_notices(lambda model: model["layers"][0].act(model["layers"][0].w), set_global(scale=3.0),
                  {"layers": [Layer(ONE, lambda x: x * scale)]})  # fmt: skip


def test_objects_given_as_arguments_are_looked_through() -> None:
    config = types.SimpleNamespace(scale=2.0)
    check_notices(lambda c, x: x * c.scale, lambda: setattr(config, "scale", 3.0), config, ONE)


def test_partials_and_wrapped_functions_are_looked_through() -> None:
    def wrapped(f: Any) -> Any:
        @functools.wraps(f)
        def g(*args: Any) -> Any:
            return f(*args)

        return g

    for fun in (functools.partial(helper), wrapped(helper), functools.partial(wrapped(lambda y, x: helper(x)), 1.0)):
        globals()["scale"] = 2.0
        check_notices(fun, set_global(scale=3.0))


def test_a_compiled_function_within_another_is_looked_through() -> None:
    inner = nnc.compile(helper)
    check_notices(lambda x: inner(x), set_global(scale=3.0))


def test_a_recursive_helper_and_a_cyclic_container_are_walked_once() -> None:
    box: list[Any] = [2.0]
    box.append(box)

    def countdown(x: Any, n: int) -> Any:
        return x * box[0] if n == 0 else countdown(x, n - 1)

    def change() -> None:
        box[0] = 3.0

    check_notices(lambda x: countdown(x, 3), change)


def test_a_long_chain_of_objects_is_walked() -> None:
    last = chain = types.SimpleNamespace(scale=2.0, next=None)
    for _ in range(3000):
        chain = types.SimpleNamespace(next=chain)

    def fun(x: Any) -> Any:
        here = chain
        while here.next is not None:
            here = here.next
        return x * here.scale

    check_notices(fun, lambda: setattr(last, "scale", 3.0))


# -- arrays ------------------------------------------------------------------------------------------------------------


def test_a_captured_array_that_is_rebound_retraces() -> None:
    globals()["scale"] = nnp.asarray([2.0, 2.0])
    check_notices(lambda x: x * scale, set_global(scale=nnp.asarray([3.0, 3.0])))


def test_captured_arrays_are_hidden_inputs_and_no_constants() -> None:
    weight = nnp.asarray([2.0, 2.0])
    graph = nnc.compile(lambda x: x * weight + weight).lower(ONE).graph
    assert len(graph.inputs) == 2
    assert graph.constants == {}


def test_a_captured_numpy_array_that_is_mutated_in_place_is_seen_without_a_new_trace() -> None:
    weight = np.array([2.0, 2.0], np.float32)
    f = nnc.compile(lambda x: x * weight)
    assert float(f(ONE)[0]) == 2
    weight[:] = 3
    assert float(f(ONE)[0]) == 3
    assert traces(f) == 1


def test_a_numpy_array_that_was_read_in_python_and_is_mutated_retraces() -> None:
    weight = np.array([1.0, 2.0], np.float32)

    def change() -> None:
        weight[1] = 3

    check_notices(lambda x: x * float(weight[1]), change)
    weight[1] = 2
    check_notices(lambda x: x * np.sum(weight[1:]), change)
    weight[1] = 2
    holder = {"w": [weight]}
    check_notices(lambda x: x * float(holder["w"][0][1]), change)


def test_a_numpy_array_that_is_given_another_shape_in_place_retraces() -> None:
    weight = np.arange(6.0).reshape(2, 3)
    read = nnc.compile(lambda x: x * float(sum(weight[:, 0])))  # in Python
    taken = nnc.compile(
        lambda x: x * nnp.sum(nnp.asarray(weight)[:, 0])
    )  # as an input, whose elements are not compared
    for columns, first in ((3, 3.0), (6, 0.0), (1, 15.0), (3, 3.0)):
        weight.shape = (6 // columns, columns)
        assert [float(f(np.float64(2))) for f in (read, taken)] == [2 * first] * 2
    assert "the form of captured weight changed" in nnc.debug.explain(taken)


def test_a_numpy_scalar_that_is_replaced_by_an_equal_one_does_not_retrace() -> None:
    globals()["scale"] = np.float32(2)
    f = nnc.compile(lambda x: x * scale)
    f(ONE)
    globals()["scale"] = np.float32(2)
    f(ONE)
    assert traces(f) == 1
    globals()["scale"] = np.float64(2)
    assert f(ONE).dtype == nnp.float32 and traces(f) == 2
    globals()["scale"] = np.asarray(2.0)
    assert f(ONE).dtype == nnp.float64 and traces(f) == 3


# -- variables that are only written to are no inputs ------------------------------------------------------------------

counter = 0
counts = {"calls": 0}


def _count_in_global(x: Any) -> Any:
    global counter
    counter += 1
    return x


def _count_in_dict(x: Any) -> Any:
    counts["calls"] += 1
    return x


def _counting_functions() -> dict[str, Callable[[Any], Any]]:
    log: list[Any] = []
    shapes: dict[Any, int] = {}
    ticks = [0]
    n = 0
    box = types.SimpleNamespace(calls=0, log=[])

    def in_log(x: Any) -> Any:
        log.append(x.shape)
        return x

    def in_cell(x: Any) -> Any:
        nonlocal n
        n += 1
        return x

    def in_cell_spelled_out(x: Any) -> Any:
        nonlocal n
        n = n + 1
        return x

    def in_list(x: Any) -> Any:
        ticks[0] += 1
        return x

    def in_items(x: Any) -> Any:
        shapes[x.shape] = 1
        return x

    def in_attribute(x: Any) -> Any:
        box.calls += 1
        box.log.append(1)
        return x

    class Model:
        def __init__(self) -> None:
            self.calls = 0
            self.seen: list[Any] = []

        def __call__(self, x: Any) -> Any:
            self.calls += 1
            self.calls = self.calls + 1
            self.seen.append(x.shape)
            return x

    functions = (in_log, in_cell, in_cell_spelled_out, in_list, in_items, in_attribute)
    found = {f.__name__: f for f in functions}
    return {**found, "global": _count_in_global, "dict": _count_in_dict, "object": Model(), "method": Model().__call__}


@pytest.mark.parametrize("name", sorted(_counting_functions()))
def test_counters_and_logs_do_not_retrace_even_between_two_shapes(name: str) -> None:
    f = nnc.compile(_counting_functions()[name])
    for _ in range(3):
        f(nnp.ones(2))
        f(nnp.ones(3))
    assert traces(f) == 2


def test_resetting_counters_and_logs_from_outside_does_not_retrace() -> None:
    log: list[Any] = []
    n = 0

    @nnc.compile
    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        log.append(n)
        counts["calls"] += 1
        return x

    f(ONE)
    log.clear()
    counts["calls"] = 0
    f(ONE)
    assert traces(f) == 1


def test_a_counter_whose_value_is_used_is_an_input() -> None:
    n = 1

    @nnc.compile
    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        return x * n

    f(ONE)
    n = 5
    assert float(f(ONE)[0]) == 6
    assert float((lambda: f(ONE))()[0]) == 6


def test_a_container_that_is_read_and_written_is_an_input() -> None:
    cache = {"scale": 2.0}

    def fun(x: Any) -> Any:
        cache["used"] = True
        return x * cache["scale"]

    check_notices(fun, lambda: cache.update(scale=3.0))


def test_an_object_with_a_method_named_like_a_list_s_is_an_input() -> None:
    class Adder:
        def __init__(self, value: float) -> None:
            self.value = value

        def add(self, x: Any) -> Any:
            return x + self.value

    globals()["scale"] = Adder(1.0)
    check_notices(lambda x: scale.add(x), set_global(scale=Adder(2.0)))


def test_an_element_taken_off_a_list_is_an_input() -> None:
    stack = [2.0]

    @nnc.compile
    def f(x: Any) -> Any:
        return x * stack.pop()

    assert float(f(ONE)[0]) == 2
    stack.append(3.0)
    assert float(f(ONE)[0]) == 3


# -- cost and reach ----------------------------------------------------------------------------------------------------


def test_a_big_captured_container_is_compared_to_its_end() -> None:
    table = list(range(100_000))
    f = nnc.compile(lambda x: x * table[-1])
    f(ONE), f(ONE)
    assert traces(f) == 1
    table[99_998] = -1
    f(ONE)
    assert traces(f) == 2


def test_attributes_that_no_function_reads_are_not_watched() -> None:
    config = types.SimpleNamespace(scale=2.0, other=1)
    f = nnc.compile(lambda x: x * config.scale)
    f(ONE)
    config.other = 2
    f(ONE)
    assert traces(f) == 1


def test_libraries_are_not_walked() -> None:
    def fun(x: Any) -> Any:
        return nnp.sum(nnc.nn.relu(x)) * np.float32(time.time() > 0)

    assert [value.name for value in take_snapshot(fun).values if not value.name.startswith("user")] == []


def test_an_executable_refuses_to_run_after_a_captured_value_changed() -> None:
    executable = nnc.compile(lambda x: x * scale).lower(ONE).compile()
    assert float(executable(ONE)[0]) == 2
    globals()["scale"] = 3.0
    with pytest.raises(nnc.errors.TraceError, match=r"captured scale changed from 2.0 to 3.0, after it was lowered"):
        executable(ONE)


def test_the_snapshot_of_one_program_does_not_touch_that_of_another() -> None:
    f = nnc.compile(lambda x: x * scale)
    f(nnp.ones(2)), f(nnp.ones(3))
    globals()["scale"] = 3.0
    assert float(f(nnp.ones(3))[0]) == 3
    assert float(f(nnp.ones(2))[0]) == 3
    assert traces(f) == 4


def test_names_and_attributes_that_code_reads_are_found() -> None:
    def f(x: Any) -> Any:
        class Inner:
            size = settings["size"]

        table = {k: v for k, v in settings.items()}  # noqa: C416
        return (lambda y: y * module.a.b)(x) + len(table) + Inner.size

    reads = reads_of(f.__code__)
    assert {"settings", "module"} <= reads.names
    assert {"a", "b", "items", "size"} <= reads.attributes


def test_a_value_that_is_stored_and_used_at_once_is_read() -> None:
    def f(x: Any) -> Any:
        global counter
        return x * (counter := counter + 1)

    assert "counter" in reads_of(f.__code__).names


def test_an_object_that_refuses_to_be_asked_does_not_stop_a_trace():
    class Refusing:
        scale = 2.0

        def __getattr__(self, name):
            raise RuntimeError(f"no {name} here")

    refusing = Refusing()
    assert float(nnc.compile(lambda x: x * refusing.scale)(np.float32(3))) == 6


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def times(self, x: Any) -> Any:
        return x * self.factor

    def plus(self, x: Any) -> Any:
        return x + self.factor


def test_a_captured_method_of_another_object_and_another_method_of_the_same_retrace() -> None:
    two, three = Scaled(2.0), Scaled(3.0)
    captured = two.times
    f = nnc.compile(lambda x: captured(x))
    assert float(f(5.0)) == 10.0
    captured = three.times
    assert float(f(5.0)) == 15.0
    captured = three.plus
    assert float(f(5.0)) == 8.0


@pytest.mark.parametrize("later", [{1.0}, {True}, frozenset({1}), {1, 2}])
def test_a_set_of_another_kind_or_with_other_elements_retraces(later: Any) -> None:
    captured: Any = {1}

    def f(x: Any) -> Any:
        return x * sum(captured), type(captured).__name__, [type(one).__name__ for one in captured]

    compiled = nnc.compile(f)
    for held in ({1}, {1}, later, {1}):
        captured = held
        (got, *rest), (want, *kinds) = compiled(nnp.asarray(2)), f(nnp.asarray(2))
        assert rest == kinds and got.dtype == want.dtype and float(got) == float(want)
    assert compiled.cache_info().misses <= 3
