"""`python -m nnc doctor`."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nnc
from nnc.__main__ import main
from nnc.backends.cpu.threads.threads import threads
from nnc.base import machine
from nnc.debug import doctor

CPUINFO = """\
processor\t: 0
model name\t: Fast CPU 9000
physical id\t: 0
core id\t: 0
flags\t\t: fpu avx2 fma

processor\t: 1
model name\t: Fast CPU 9000
physical id\t: 0
core id\t: 0
flags\t\t: fpu avx2 fma

processor\t: 2
model name\t: Fast CPU 9000
physical id\t: 1
core id\t: 0
flags\t\t: fpu avx2 fma
"""


def test_doctor_prints_its_findings_and_exits_with_0(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))  # no other process writes there
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip() == doctor.to_text(doctor.collect())
    for line in (f"numpy          {np.__version__}", "BLAS of numpy", "threads", "oneDNN", "mpi4py", "caches"):
        assert line in printed


@pytest.mark.parametrize("arguments", [[], ["docter"], ["doctor", "--verbose"]])
def test_an_unknown_subcommand_prints_the_usage_and_exits_with_2(arguments: list[str]) -> None:
    run = subprocess.run([sys.executable, "-m", "nnc", *arguments], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("usage: python -m nnc doctor")


def test_the_processor_is_read_from_cpuinfo(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)
    facts = doctor.processor(file)
    assert (facts["model"], facts["cores"], facts["vector units"]) == ("Fast CPU 9000", "2", "avx2, fma")


def test_a_machine_without_cpuinfo_still_has_a_processor(tmp_path: Path) -> None:
    facts = doctor.processor(tmp_path / "missing")
    assert facts["vector units"] == "unknown"
    assert int(facts["cores"]) >= 1


def test_gpus_are_listed_from_the_folder_of_their_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gpus"
    (folder / "0000:01:00.0").mkdir(parents=True)
    (folder / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 7\n")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07\nGCC version: 12\n")
    monkeypatch.setattr(doctor, "version_of", lambda *names: doctor.ABSENT)
    assert doctor.devices(folder)["driver"] == "NVIDIA UNIX x86_64 Kernel Module  580.82.07"
    assert doctor.devices(folder)["gpu 0"] == "NVIDIA H200 (pip install 'nnc[gpu13]' or 'nnc[gpu]' to use it)"
    assert list(doctor.devices(tmp_path / "none" / "missing")) == ["cpu", "sim:0", "ptx:0"]


def test_absent_libraries_are_said_to_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(metadata, "files", missing)
    monkeypatch.setattr(machine, "_listed_version", lambda name: "")
    facts = doctor.libraries()
    assert {name for name, fact in facts.items() if fact == doctor.ABSENT} == {"oneDNN", "cuBLASLt", *doctor.OPTIONAL}


def test_a_onednn_wheel_is_found_through_its_list_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    class File:
        def __init__(self, name: str) -> None:
            self.name = name

        def locate(self) -> str:
            return f"/somewhere/lib/{self.name}"

    monkeypatch.setattr(doctor, "version_of", lambda *names: "2025.1")
    monkeypatch.setattr(metadata, "files", lambda name: [File("LICENSE"), File("libdnnl.so.3.8"), File("libdnnl.so.3")])
    monkeypatch.setattr(doctor, "library", lambda: SimpleNamespace(instructions="AVX2"))
    assert doctor.onednn() == "2025.1 at /somewhere/lib/libdnnl.so.3, instructions up to AVX2"
    monkeypatch.setattr(doctor, "library", lambda: None)
    assert doctor.onednn() == "2025.1 at /somewhere/lib/libdnnl.so.3, which does not load"
    monkeypatch.setattr(metadata, "files", lambda name: [File("LICENSE")])
    assert doctor.onednn() == "2025.1, without its library"


def test_the_compiler_of_kernels_is_named() -> None:
    facts = doctor.native_kernels()
    assert list(facts) == ["LLVM", "made for", "OpenMP", "threads"]
    assert facts["LLVM"].endswith(f"(llvmlite {metadata.version('llvmlite')})")
    assert facts["threads"].startswith(f"{threads().count.value}")


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "compiler", lambda: None)
    monkeypatch.setattr(doctor, "why_absent", lambda: "OSError: libllvmlite.so is damaged")
    assert doctor.native_kernels()["LLVM"] == "absent, so NumPy runs all commands: OSError: libllvmlite.so is damaged"


def test_the_version_of_nnc_is_known_where_it_is_not_installed() -> None:
    assert doctor.collect()["versions"]["nnc"] == nnc.__version__


def test_versions_are_those_that_python_finds() -> None:
    names = {found.name for found in metadata.distributions()}
    assert names.issuperset(doctor.REQUIRED)
    for name in names:
        assert doctor.version_of("no-such-distribution", name) == metadata.version(name)
        assert doctor.version_of(name.upper().replace("-", "_")) == metadata.version(name)
    assert doctor.version_of("no-such-distribution") == doctor.ABSENT


def test_versions_are_found_where_no_folder_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = tmp_path / "old_form.egg-info"
    described.mkdir()
    (described / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: old_form\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor.version_of("old-form") == "1.5"
