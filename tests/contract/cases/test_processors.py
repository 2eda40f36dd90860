"""Programs run on processors that lack some of this machine's instructions, in processes whose code is made for such a one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.numpy_ref import candidate_kernels
from nnc.backends.onednn.library import library, loaded
from nnc.base.libraries import openblas_kernels
from nnc.base.machine import CPUS, processor
from nnc.base.options import ONEDNN, OPENBLAS, Options, chosen_cpu
from nnc.run.store.autotune import Tuner
from nnc.run.store.stored import _here
from tests.sampling import sampled

ROOT = Path(__file__).parents[3]
UNITS = processor(Path("/proc/cpuinfo"))["vector units"].split(", ")
LEVELS = [level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4") if set(CPUS[level]) <= set(UNITS)]
OLDER = LEVELS[:2]
# Of each level: the kernels of OpenBLAS, and the instructions of oneDNN.
LIBRARIES = {
    "x86-64-v2": ("Nehalem", "SSE41"),
    "x86-64-v3": ("Haswell", "AVX2"),
    "x86-64-v4": ("SkylakeX", "AVX512_CORE"),
}

CASE = """
import numpy as np
import nnc, nnc.numpy as nnp, nnc.scipy.special as special

x = nnp.asarray([3.0, -1.0, 0.5, 3.0, -0.0, 1e-40, np.inf, 2.015625], "bfloat16")
bits = lambda y: np.asarray(y).view(np.uint16).tolist()
order = [1, 4, 5, 2, 7, 0, 3, 6]
assert bits(nnp.sort(x)) == [bits(x)[i] for i in order], nnp.sort(x)
assert np.asarray(nnp.argsort(x)).tolist() == order
assert bits(nnp.partition(x, 3))[3] == bits(x)[2]
assert np.asarray(nnp.isin(x, nnp.asarray([3, 2], "bfloat16"))).tolist() == [True, False, False, True] + 4 * [False]
assert np.asarray(nnp.searchsorted(nnp.sort(x), nnp.asarray([1, 4], "bfloat16"))).tolist() == [4, 7]
assert len(nnp.unique(x)) == 7
near_0 = nnc.compile(lambda x: nnp.nextafter(x * 0, 1))(x[:3])
assert bits(near_0) == [1, 1, 1]
assert float(nnc.compile(nnp.sinc)(x)[2]) == 0.63671875
gathered = nnc.grad(lambda x: nnp.sum(x[nnp.asarray([1, 1, 2])] * 1.5))(x)
assert np.asarray(gathered).astype(float).tolist() == [0, 3, 1.5, 0, 0, 0, 0, 0]
assert float(x.at[nnp.asarray([1, 1])].mul(1.5)[1]) == -2.25
assert float(nnp.nanmax(x[:4])) == 3.0
assert np.asarray(nnp.cummax(x[1:5])).astype(float).tolist() == [-1, 0.5, 3, 3]
assert float(nnc.compile(special.gamma)(nnp.asarray(4, "bfloat16"))) == 6.0
assert float(nnc.compile(nnp.linalg.cholesky)(nnp.asarray([[4]], "bfloat16"))[0, 0]) == 2.0
"""

SWEEP = """
import sys
import numpy as np
import nnc
from nnc.base import dtypes
from nnc.graph import command, reference
from tests.contract.commands.sample import all_samples

is_float = lambda x: np.asarray(x).dtype.kind == "f"
rows = [
    (row, name)
    for row in all_samples()
    for name in ("bfloat16", "float16")
    if name in row.dtypes and any(map(is_float, row.operands))
]
for row, name in rows[int(sys.argv[1]) :: int(sys.argv[2])]:
    kind = dtypes.as_dtype(name)
    operands = [np.asarray(x).astype(kind) if is_float(x) else np.asarray(x) for x in row.operands]
    run = lambda *operands: command(row.command)(*operands, **row.params)
    found, wanted = nnc.compile(run)(*operands), reference[command(row.command)](*operands, **row.params)
    found, wanted = (x if isinstance(x, (tuple, list)) else (x,) for x in (found, wanted))
    bound = row.tolerance * (2e-3 if name == "float16" else 1.6e-2)
    for x, y in zip(found, wanted, strict=True):
        x, y = (np.asarray(z).astype(np.float64) if np.asarray(z).dtype == kind else np.asarray(z) for z in (x, y))
        np.testing.assert_allclose(x, y, rtol=bound, atol=bound, err_msg=f"{row} {name}")
"""


TELL = """
from nnc.base.libraries import openblas_kernels
from nnc.backends.onednn.library import library
print(openblas_kernels(), getattr(library(), "instructions", None))
"""


def run(text: str, level: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in (ONEDNN, OPENBLAS)}
    environment: Mapping[str, str] = {
        **kept,
        **variables,
        "NNC_CPU": level,
        "NNC_CACHE_DIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_programs_code_and_choices_on_disk_are_of_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    programs, code, choices = set(), set(), set()
    for level in ("native", *LEVELS):
        monkeypatch.setenv("NNC_CPU", level)
        programs.add(str(_here.__wrapped__("cpu")))
        code.add(str(Engine(chosen_cpu()).made_for))
        choices.add(Tuner(candidate_kernels, Options())._here["vector units"])
    assert len(programs) == len(code) == 1 + len(LEVELS)
    assert len(choices) == len({frozenset(UNITS), *(frozenset(CPUS[level]) for level in LEVELS)})


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(library() is None or openblas_kernels() is None, reason="oneDNN or OpenBLAS is not there")
@pytest.mark.parametrize("level", LEVELS)
def test_libraries_are_kept_to_the_processor_that_code_is_made_for(level: str, tmp_path: Path) -> None:
    found = run("import nnc" + TELL, level, tmp_path)
    assert told(found) == list(LIBRARIES[level])
    assert not found.stderr


@pytest.mark.skipif(library() is None or openblas_kernels() is None, reason="oneDNN or OpenBLAS is not there")
def test_variables_that_users_set_for_a_library_stay(tmp_path: Path) -> None:
    own = {OPENBLAS: "Nehalem", "DNNL_MAX_CPU_ISA": "SSE41"}
    assert told(run("import numpy, nnc" + TELL, LEVELS[-1], tmp_path, **own)) == ["Nehalem", "SSE41"]
    assert told(run("import nnc" + TELL, LEVELS[-1], tmp_path, **{ONEDNN: "AVX"}))[1] == "AVX"
    leaves = "import nnc, os; assert 'OPENBLAS_CORETYPE' not in os.environ" + TELL
    assert told(run(leaves, "x86-64-v2", tmp_path)) == ["Nehalem", "SSE41"]


@pytest.mark.skipif(library() is None or openblas_kernels() is None, reason="oneDNN or OpenBLAS is not there")
@pytest.mark.skipif(len(LEVELS) < 2, reason="no older processor differs from this one")
def test_a_library_that_was_loaded_before_is_named_in_a_warning(tmp_path: Path) -> None:
    noted = """
import sys, warnings
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    {body}
for each in found:
    print(each.category.__name__, each.filename, each.message)
"""
    openblas = told_text(run(noted.format(body="import numpy; import nnc"), "x86-64-v2", tmp_path))
    assert openblas.startswith(
        "RuntimeWarning <string> NNC_CPU: NumPy was imported before nnc, and its OpenBLAS runs kernels for "
    )
    assert openblas.endswith("instead of Nehalem.\nFix: import nnc before numpy, or set OPENBLAS_CORETYPE=Nehalem.\n")
    used = f"import ctypes; ctypes.CDLL({loaded().path!r}).dnnl_get_effective_cpu_isa(); import nnc\n"
    used += "    from nnc.backends.onednn.library import library; library()"
    onednn = told_text(run(noted.format(body=used), "x86-64-v2", tmp_path))
    assert "NNC_CPU: oneDNN was in use before nnc loaded it, and runs more instructions than SSE41 has.\n" in onednn
    assert onednn.endswith("Fix: set ONEDNN_MAX_CPU_ISA=SSE41.\n")
    for body in (
        "import numpy; import nnc",
        used,
    ):  # in the order that keeps them, or without a choice, nothing is said
        assert told_text(run(noted.format(body=body), "native", tmp_path)) == ""


def told_text(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("level", OLDER)
def test_bfloat16_needs_no_instructions_of_its_own(level: str, tmp_path: Path) -> None:
    done = run(CASE, level, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", OLDER)
def test_every_command_runs_in_16_bits_on_older_processors(level: str, tmp_path: Path) -> None:
    parts = range(16)
    for part in sampled(parts, len(parts)):
        done = run(SWEEP, level, tmp_path, str(part), str(len(parts)))
        assert done.returncode == 0, done.stderr
