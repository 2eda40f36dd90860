"""Modules that `import nnc` loads, and modules that wait until they are asked for."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import nnc
from nnc.backends.cpu.compiler.elf import is_supported


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_leaves_models_lowering_and_backends_for_later() -> None:
    loaded = run("import sys, nnc; print(*(name for name in sys.modules if name.startswith('nnc.')))").split()
    assert "nnc.numpy" in loaded
    late = [
        name
        for name in loaded
        if name.split(".")[1] in ("nn", "optim", "io", "data", "view", "scipy", "lower", "run", "backends", "compiled")
    ]
    assert late == ["nnc.compiled", "nnc.compiled.device_kinds"]  # the records of kinds of devices
    assert not {"nnc.device.targets", "nnc.device.cuda"} & set(loaded)


def test_every_public_name_can_be_asked_for_in_a_fresh_process() -> None:
    assert run("import nnc; print(all(getattr(nnc, name) is not None for name in nnc.__all__))").strip() == "True"
    assert set(nnc.__all__) <= set(dir(nnc))


def test_a_name_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="compiel"):
        nnc.compiel  # noqa: B018


def test_view_is_a_function_also_where_its_modules_came_first() -> None:
    code = "import nnc.view.layout, nnc; print(nnc.view(lambda x: x + 1, nnc.numpy.ones(2)), nnc.view.memory.__name__)"
    assert run(code).strip() == "Picture(name='graph <lambda>') memory"


def test_the_first_command_finds_the_kernels_of_the_backends() -> None:
    code = "import nnc.numpy as nnp, sys; nnp.ones(2) + 1; print('nnc.backends.loaded' in sys.modules)"
    assert run(code).strip() == "True"


def test_a_first_call_imports_only_modules_that_its_commands_ask_for() -> None:
    code = (
        "import sys, nnc, nnc.numpy as nnp; f = nnc.compile(nnc.grad(lambda x: nnp.tanh(x @ x.T).sum())); x = nnp.ones((4, 4));"
        " before = set(sys.modules); f(x); print(*sorted(set(sys.modules) - before))"
    )
    loaded = [name for name in run(code).split() if name.startswith("nnc.")]
    assert "nnc.backends.cpu.kernels.products.dot" in loaded
    asked = ("nnc.backends.", "nnc.lower.kernels.math.", "nnc.lower.passes.")
    assert [name for name in loaded if not name.startswith(asked)] == []


def test_a_trivial_call_loads_few_modules() -> None:
    code = (
        "import sys, nnc, nnc.numpy as nnp; nnc.compile(lambda x: x + 1.0)(nnp.ones(3));"
        " print(*(name for name in sys.modules if name.split('.')[0] == 'nnc'))"
    )
    loaded = run(code).split()
    assert len(loaded) <= 282
    families = ("attention", "sorts", "pooling", "products", "onednn", "blas", "mpi", "cuda")
    backends = [name.split(".") for name in loaded if name.startswith("nnc.backends.")]
    assert [name for name in backends if not set(families).isdisjoint(name)] == []


def test_another_process_loads_llvm_while_passes_and_kernels_are_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not is_supported():
        pytest.skip("LLVM is loaded in this process here")
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    code = """
import subprocess, sys, nnc
there = []
class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        there.append({name for name in sys.modules if name.startswith("nnc.")})
        super().__init__(*args, **options)
subprocess.Popen = Popen
nnc.compile(lambda x: x + 1)
print(len(there), "nnc.lower.phases" in sys.modules, *sorted(there[0]))
"""
    count, is_imported, *there = run(code).split()
    assert (count, is_imported) == ("1", "True")
    rooms = (
        "nnc.lower.passes",
        "nnc.lower.plan",
        "nnc.backends.cpu.kernels",
        "nnc.trace.loops",
        "nnc.compiled.executable",
    )
    assert [name for name in there if name.startswith(rooms)] == []


@pytest.mark.parametrize("name", ["numpy", "tree", "graph"])
def test_names_that_come_later_are_those_of_their_files(name: str) -> None:
    code = f"import nnc; print(all(hasattr(nnc.{name}, x) for x in nnc.{name}.__all__))"
    assert run(code).strip() == "True"


def test_files_of_the_namespace_that_come_later_are_listed_in_full() -> None:
    files = nnc.numpy._LATER
    for file, names in files.items():
        module = importlib.import_module(f"nnc.numpy.{file}")
        assert names.split() == ([file] if file in ("fft", "linalg") else sorted(module.__all__)), file


def test_importing_leaves_the_collection_of_garbage_as_it_was() -> None:
    code = "import gc; {}; import nnc; nnc.compile; nnc.scipy; print(gc.isenabled())"
    assert run(code.format("pass")).strip() == "True"
    assert run(code.format("gc.disable()")).strip() == "False"


def test_numbers_and_lists_load_no_masked_arrays() -> None:
    code = (
        "import sys, numpy as np, nnc, nnc.numpy as nnp; x = nnp.ones(2); nnc.compile(lambda x: x * np.float64(2) + [1, 2])(x);"
        " x * np.float64(2) + [1.0, 2.0]; print('numpy.ma' in sys.modules)"
    )
    assert run(code).strip() == "False"


ROOMS = (
    "nnc", "nnc.data", "nnc.debug", "nnc.errors", "nnc.graph", "nnc.io", "nnc.nn", "nnc.nn.initializers", "nnc.nn.models",
    "nnc.numpy", "nnc.numpy.fft", "nnc.numpy.linalg", "nnc.optim", "nnc.random", "nnc.scipy",
    "nnc.scipy.special", "nnc.testing", "nnc.tree", "nnc.view",
)  # fmt: skip


@pytest.mark.parametrize("name", ROOMS)
def test_a_public_module_lists_its_public_names_alone(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert [x for x in dir(module) if not hasattr(module, x)] == []
    assert {x for x in dir(module) if x.startswith("_")} <= {
        "__array_api_version__",
        "__array_namespace_info__",
    }  # the standard's


def test_names_of_imported_modules_are_in_no_list() -> None:
    imported = {
        "Any",
        "TYPE_CHECKING",
        "annotations",
        "importlib",
        "np",
        "dtypes",
        "elementwise",
        "spelled",
        "user_error",
    }
    assert imported & {*dir(nnc), *dir(nnc.numpy), *dir(nnc.numpy.linalg), *dir(nnc.nn), *dir(nnc.tree)} == set()


def test_a_sub_interpreter_is_refused_with_the_reason() -> None:
    name = next((name for name in ("_interpreters", "_xxsubinterpreters") if importlib.util.find_spec(name)), None)
    if name is None:
        pytest.skip("this Python has no sub-interpreters")
    begin = "try:\n    import nnc\nexcept ImportError as error:\n    print(error)"
    made = "'legacy'" if name == "_interpreters" else ""  # with the main interpreter's lock, as NumPy needs it
    path = "'import sys; sys.path[:] = ' + repr(sys.path)"
    code = f"import sys, {name} as s; s.run_string(s.create({made}), {path} + {chr(10) + begin!r})"
    text = run(code)
    assert "this is a sub-interpreter" in text and "Fix: import nnc in the main interpreter" in text


def test_kernels_are_found_without_imports_of_the_modules_that_have_them() -> None:
    code = """
import importlib, pkgutil, nnc
from nnc.device import load_kernels
from nnc.graph import COMMANDS
from nnc.graph.kernels import kernel

def found():
    return {str(command): sorted((each.backend, each.device) for each in kernel.get(command, ())) for command in commands}

load_kernels(), load_kernels("cuda")
commands = list(COMMANDS.values())
before = found()
for module in pkgutil.walk_packages(nnc.__path__, "nnc."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert ("printed", "cuda") in before["fused"] and ("cpu", "cpu") in before["sort"]
print([name for name, kernels in found().items() if kernels != before[name]])
"""
    assert run(code).strip() == "[]"
