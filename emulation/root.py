"""Linux on aarch64 in a folder: Debian's packages, unpacked, and wheels, with a Python that QEMU's user mode runs.

Nothing is installed on this machine, and nothing here needs root. Programs of the folder see it in place of `/` where it has a file
of that name. So it also has the description of a processor, as the kernel of a machine with Neoverse N1 cores writes it: QEMU hands
on that of this machine.

    archives/ lists/   packages, as apt fetched them
    root/              the packages' files, and /proc/cpuinfo
    site/              the wheels
    cache/             nnc's cache
    python             starts Python; it is written last, so a folder that has it is whole
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "out" / "aarch64"
QEMU = "qemu-aarch64-static"
_PACKAGES = ("python3", "libgomp1", "libstdc++6")
_LEFT_OUT = ("dpkg_", "tar_", "perl")  # needed for installing alone
_WHEELS = (
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "scipy",
    "scikit-learn",
    "onnx",
)  # beside those that nnc itself needs
_C_LIBRARIES = range(17, 37)  # glibc 2.17 to 2.36, Debian 12's
_CORE = """\
processor\t: {number}
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
_PYTHON = """\
#!/bin/sh
exec {qemu} -cpu neoverse-n1 -L {folder}/root -E PYTHONHOME={folder}/root/usr -0 {folder}/python {folder}/root/usr/bin/{name} "$@"
"""


class MissingError(Exception):
    """A program or a package that emulation needs cannot be had."""


def make_root(folder: Path = FOLDER) -> Path:
    """Returns the path of an emulated Python, and makes its folder first where there is none: about a minute.

    Raises:
        MissingError: QEMU, apt or the packages cannot be had.
    """
    python = folder / "python"
    if not python.exists():
        for program, package in ((QEMU, "qemu-user-static"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
            if shutil.which(program) is None:
                raise MissingError(f"{program} is not there: install {package} (Debian, Ubuntu)")
        _fetch_packages(folder)
        _fetch_wheels(folder, _version(folder))
        cores = "".join(_CORE.format(number=i) for i in range(os.cpu_count() or 1))
        (folder / "root" / "proc").mkdir(exist_ok=True)
        (folder / "root" / "proc" / "cpuinfo").write_text(cores)
        part = folder / "python.part"
        part.write_text(_PYTHON.format(qemu=QEMU, folder=folder, name=f"python{_version(folder)}"))
        part.chmod(0o755)
        part.replace(python)
    return python


def environment(folder: Path = FOLDER) -> dict[str, str]:
    """Returns the environment of emulated programs."""
    paths = os.pathsep.join([str(ROOT), str(folder / "site")])
    own = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}  # it takes long to compile
    return {"NNC_CACHE_DIR": str(folder / "cache"), **os.environ, **own}


def _fetch_packages(folder: Path) -> None:
    """Fetches the packages and all that they need, with lists and archives of their own, and unpacks them."""
    for name in ("lists/partial", "archives/partial", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "installed").write_text("")  # nothing is
    settings = {
        "Dir::State::Lists": folder / "lists", "Dir::State::status": folder / "installed",
        "Dir::Cache": folder, "Dir::Cache::Archives": folder / "archives",
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
    }  # fmt: skip
    apt = ["apt-get", "-qq", "-y", *(f"-o{name}={value}" for name, value in settings.items())]
    _run([*apt, "update"])
    _run([*apt, "--download-only", "install", *_PACKAGES])
    for archive in sorted((folder / "archives").glob("*.deb")):
        if not archive.name.startswith(_LEFT_OUT):
            _run(["dpkg-deb", "-x", str(archive), str(folder / "root")])


def _fetch_wheels(folder: Path, version: str) -> None:
    """Installs wheels: those that nnc needs on every system, and the tests'."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    platforms = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in _C_LIBRARIES))
    options = [f"--platform={name}" for name in platforms] + [f"--python-version={version}", "--only-binary=:all:"]
    everywhere = [name for name in needed if ";" not in name]
    place = ["--upgrade", "--target", str(folder / "site")]
    _run([sys.executable, "-m", "pip", "install", "-q", *place, *options, *everywhere, *_WHEELS])


def _version(folder: Path) -> str:
    """Returns the version of the folder's Python, such as 3.11."""
    for path in (folder / "root" / "usr" / "bin").glob("python3.*"):
        return path.name.removeprefix("python")
    raise MissingError(f"no Python was unpacked in {folder}")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{' '.join(command[:3])} … failed: {(done.stderr or done.stdout).strip()[-1000:]}")
