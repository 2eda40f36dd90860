"""Names that nnc does not have: errors of modules and arrays name nnc's code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.distributed
import nnc.numpy as nnp
from nnc import nn, optim, random, tree
from nnc.errors import MissingNameError
from nnc.errors.names import SOURCES, TABLES, code_of, find_row

EXAMPLES = [
    (nnc, "jit", r"use nnc\.compile\(f\)\."),
    (nnc, "lax", r"use nnc\.scan: control flow"),
    (nnc, "remat", r"use nnc\.checkpoint\(f\)\."),
    (nnc, "pmap", r"use nnc\.vmap"),
    (nnc, "make_jaxpr", r"use nnc\.make_graph\(f\)\."),
    (nnc, "filter_jit", r"use nnc\.compile\(f\)"),
    (nnc, "no_grad", r"use nnc\.stop_gradient"),
    (nnc, "relu", r"use nnc\.nn\.relu"),
    (nnc, "box_iou", r"use nnc\.nn\.box_iou\."),
    (nnc, "compiel", r"use nnc\.compile, or see dir\(nnc\)"),
    (nnc, "qqqqq", r"see dir\(nnc\) for its names"),
    (nnc, "shard_map", r"use nnc\.distributed\.shard_map\(f, mesh=mesh"),
    (nnc, "Mesh", r"use nnc\.distributed\.Mesh\."),
    (nnc, "make_mesh", r"use nnc\.distributed\.make_mesh"),
    (nnc, "PartitionSpec", r"use nnc\.distributed\.PartitionSpec\."),
    (nnc, "NamedSharding", r"use nnc\.distributed\.shard_map\(.*arrays have no sharding of their own"),
    (nnc, "sharding", r"use nnc\.distributed\.shard_map"),
    (nnc, "experimental", r"use nnc\.distributed\.shard_map"),
    (nnc, "process_index", r"use nnc\.distributed\.rank\(\)"),
    (nnc.distributed, "initialize", r"use nnc\.distributed\.size\(\): `python -m nnc\.distributed run"),
    (nnc.distributed, "all_reduce", r"use nnc\.psum\(x, axis_name\)"),
    (nnc.distributed, "Mash", r"use nnc\.distributed\.Mesh, or see"),
    (nnp, "clamp", r"use nnc\.numpy\.clip\(x, low, high\)"),
    (nnp, "cat", r"use nnc\.numpy\.concatenate\("),
    (nnp, "rsqrt", r"use 1 / nnc\.numpy\.sqrt\(x\)"),
    (nnp, "batches", r"use nnc\.data\.batches\."),
    (nnc.scipy, "wofz", r"use nnc\.scipy\.special\.wofz\(x\): of complex numbers"),
    (nnc.scipy, "expm_frechet", r"use nnc\.scipy\.linalg\.expm_frechet\."),
    (nnc.scipy, "fftconvolve", r"use nnc\.scipy\.signal\.fftconvolve\."),
    (nnp.linalg, "matrix_exp", r"use nnc\.numpy\.linalg\.expm"),
    (random, "PRNGKey", r"use nnc\.random\.key\(seed\)"),
    (random, "randn", r"use nnc\.random\.normal"),
    (tree, "tree_map", r"use nnc\.tree\.map\."),
    (tree, "ravel_pytree", r"use nnc\.tree\.ravel"),
    (nn, "Conv2d", r"use nnc\.nn\.Conv\("),
    (nn, "cross_entropy", r"use nnc\.nn\.softmax_cross_entropy"),
    (nn, "swish", r"use nnc\.nn\.silu"),
    (nn, "Linaer", r"use nnc\.nn\.Linear, or see"),
    (nn.initializers, "kaiming_normal_", r"use nnc\.nn\.initializers\.he_normal"),
    (optim, "huber_loss", r"use nnc\.nn\.huber"),
    (optim, "AdamW", r"use nnc\.optim\.adamw"),
    (nnc.io, "load_file", r"use nnc\.io\.load, or see"),
    (nnc.data, "DataLoader", r"use nnc\.data\.batches"),
    (nnc.debug, "debug_nans", r"use nnc\.debug\.check_finite"),
]


@pytest.mark.parametrize(("module", "name", "fix"), EXAMPLES, ids=[f"{m.__name__}.{name}" for m, name, _ in EXAMPLES])
def test_a_name_of_another_library_is_answered_with_code_of_nnc(module: Any, name: str, fix: str) -> None:
    with pytest.raises(MissingNameError, match=rf"{module.__name__}: it has no {name!r}\.(.|\n)*at (.|\n)*Fix: {fix}"):
        getattr(module, name)
    assert not hasattr(module, name)
    assert getattr(module, name, None) is None


CLASSES = {"nnc.Array", "nnc.nn.Module", "nnc.optim.GradientTransformation"}


@pytest.mark.parametrize("where", [where for where in SOURCES if where not in CLASSES])
def test_every_row_answers_in_the_modules_that_its_users_come_from(where: str) -> None:
    module = importlib.import_module(where)
    for name in {name for source in SOURCES[where] for name in TABLES[source]} - set(module.__all__):
        row = find_row(where, name)
        if row is not None and not hasattr(module, name):
            with pytest.raises(MissingNameError) as caught:
                getattr(module, name)
            assert f"use {code_of(row)}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("numpy", r"use np\.asarray\(x\)"), ("detach", r"use nnc\.stop_gradient\(x\)"), ("backward", r"use nnc\.grad\(f\)"),
        ("unsqueeze", r"use nnc\.numpy\.expand_dims"), ("to", r"use x\.astype\(dtype\): to a device: `nnc\.device_put"),
        ("permute", r"use nnc\.numpy\.transpose"), ("H", r"use nnc\.numpy\.conj\(x\.mT\)"), ("add_", "use x = x \\+ y"),
    ],
)  # fmt: skip
def test_methods_of_tensors_are_answered_for_arrays_and_tracers(name: str, fix: str) -> None:
    x = nnp.ones(2)
    message = rf"nnc\.Array: it has no {name!r}\.(.|\n)*Fix: {fix}"
    with pytest.raises(MissingNameError, match=message):
        getattr(x, name)
    with pytest.raises(MissingNameError, match=message):
        nnc.compile(lambda x: getattr(x, name))(x)
    assert not hasattr(x, name) and name not in dir(x)


MODEL, OPTIMIZER = nn.Linear(2, 2, key=random.key(0)), optim.adam(0.1)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("parameters", r"nnc\.nn\.parameters\(model\)"), ("named_parameters", r"nnc\.nn\.parameters\(model\)"),
        ("state_dict", r"nnc\.io\.save"), ("load_state_dict", r"nnc\.nn\.load_torch"), ("train", r"nnc\.nn\.inference_mode"),
        ("eval", r"nnc\.nn\.inference_mode\(model\)"), ("to", r"nnc\.device_put"), ("cuda", r"nnc\.device_put"),
        ("zero_grad", r"nnc\.grad\(f\)"), ("requires_grad_", r"nnc\.nn\.trainable"), ("apply", r"nnc\.tree\.map"),
        ("forward", r"model\(x\)"), ("init", r"nnc\.nn\.Linear"),
    ],
)  # fmt: skip
def test_methods_of_other_libraries_modules_are_answered(name: str, fix: str) -> None:
    with pytest.raises(MissingNameError, match=rf"^Linear: it has no {name!r}\.(.|\n)*Fix: use {fix}"):
        getattr(MODEL, name)
    assert not hasattr(MODEL, name) and getattr(MODEL, name, None) is None and name not in dir(MODEL)


@pytest.mark.parametrize(
    ("name", "fix"),
    [("step", r"optimizer\.update"), ("zero_grad", r"nnc\.grad"), ("param_groups", r"nnc\.optim\.multi_transform")],
)
def test_methods_of_torchs_optimizers_are_answered(name: str, fix: str) -> None:
    with pytest.raises(MissingNameError, match=rf"^GradientTransformation: it has no {name!r}\.(.|\n)*Fix: use {fix}"):
        getattr(OPTIMIZER, name)
    assert not hasattr(OPTIMIZER, name) and name not in dir(OPTIMIZER) and "update" in dir(OPTIMIZER)


def test_fields_and_methods_of_modules_may_have_names_of_other_libraries() -> None:
    class Layer(nn.Module):
        parameters: nnc.Array
        train: bool = True

        def apply(self) -> nnc.Array:
            return self.parameters

    layer = Layer(nnp.ones(2))
    assert layer.train and layer.apply().tolist() == [1, 1] and len(tree.leaves(layer)) == 1
    assert layer.replace(train=False).train is False
    assert tree.map(lambda x: x + 1, layer).parameters.tolist() == [2, 2]
    with pytest.raises(nnc.errors.ArgumentTypeError, match="parameters"):
        Layer()  # type: ignore[call-arg]  (the field has no default)
    with pytest.raises(AttributeError, match="'Layer' object has no attribute 'qqqqq'"):
        layer.qqqqq  # type: ignore[attr-defined]  # noqa: B018


def test_an_error_within_a_property_of_a_module_is_told_as_it_is() -> None:
    class Layer(nn.Module):
        @property
        def train(self) -> Any:
            return self.lost  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="no attribute 'lost'"):
        Layer().train  # noqa: B018


def test_a_module_with_a_forward_method_says_that_it_is_called_by_call() -> None:
    class Layer(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    class Derived(Layer):
        def __call__(self, x: Any) -> Any:
            return self.forward(x)

    class Calls:
        def __call__(self, x: Any) -> Any:
            return x

    class Mixed(Layer, Calls): ...

    layer: Any = Layer()
    with pytest.raises(TypeError, match=r"Layer: it cannot be called(.|\n)*Fix: rename forward to __call__"):
        layer(1)
    assert layer.forward(1) == Derived()(1) == Mixed()(1) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda: nnc.jit, lambda: tree.tree_map, lambda: nnp.clamp, lambda: nnp.ones(2).detach, lambda: MODEL.parameters,
        lambda: OPTIMIZER.step, lambda: nn.Linear.parameters,
    ],
)  # fmt: skip
def test_a_traceback_of_a_missing_name_ends_in_the_users_line(ask: Any) -> None:
    with pytest.raises(MissingNameError) as caught:
        ask()
    assert [entry.path.name for entry in caught.traceback] == ["test_lookup.py", "test_lookup.py"]


def test_attributes_of_arrays_and_variables_stay() -> None:
    assert "sum" in dir(nnp.ones(2)) and nnp.ones(2).T.shape == (2,)
    g = nnc.DynamicGraph()
    x = g.variable(2.0)
    g.backward(x * x)
    assert float(x.grad) == 4
    with pytest.raises(AttributeError, match="no attribute 'qqqqq'"):
        nnp.ones(2).qqqqq  # noqa: B018
    assert np.asarray(nnp.ones(2)).tolist() == [1, 1]


def test_the_module_of_compiled_functions_does_not_hide_the_answer() -> None:
    assert nnc.compile(lambda x: x + 1)(1.0) == 2
    with pytest.raises(MissingNameError, match="use nnc.compile"):
        nnc.jit  # noqa: B018


def test_asking_for_submodules_imports_no_others() -> None:
    code = (
        "import nnc, sys; from nnc import base, commands; hasattr(nnc, '__wrapped__'); print('nnc.nn' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


def test_importing_nnc_reads_only_the_methods_of_tensors() -> None:
    code = (
        "import nnc; from nnc.errors.names.tables import _read; "
        "print(_read.cache_info().currsize); _read('torch.Tensor'); print(_read.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
