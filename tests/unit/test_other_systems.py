"""nnc on systems on which no test runs: it is imported and runs on this one, which pretends to be macOS or Windows."""

from __future__ import annotations

import multiprocessing
import os
import platform
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

ROOT = Path(__file__).parents[2]

# Functions that the other system lacks are taken away once Python's own modules and the libraries are there, which look for them,
# too. Windows' functions for locks take the arguments of POSIX's, and more, which are passed over.
PRETENDED = """
import asyncio, concurrent.futures, ctypes, ctypes.util, importlib.metadata, multiprocessing, os, platform, pkgutil, queue, signal
import socket, subprocess, sys, sysconfig, tempfile, threading, urllib.request, webbrowser
from types import SimpleNamespace
import filelock, llvmlite.binding, ml_dtypes, numpy as np, optree, safetensors.numpy

sysconfig.get_paths()  # is kept
system, machine, lacking = sys.argv[1], sys.argv[2], sys.argv[3].split()
for name in lacking:
    sys.modules[name] = None
for module in (os, signal):
    for name in lacking:
        if hasattr(module, name):
            delattr(module, name)
if system == "win32":
    os.supports_dir_fd = set()
    library = ctypes.CDLL(None)
    names = {
        "AcquireSRWLockExclusive": "pthread_mutex_lock", "ReleaseSRWLockExclusive": "pthread_mutex_unlock",
        "SleepConditionVariableSRW": "pthread_cond_wait", "WakeAllConditionVariable": "pthread_cond_broadcast",
        "SwitchToThread": "sched_yield",
    }

    class Library(ctypes.CDLL):
        def __init__(self, name, *args, **options):
            if name is None:
                raise TypeError("on Windows a library has a name")
            self.own = {theirs: getattr(library, ours) for theirs, ours in names.items()} if name == "kernel32" else {}
            super().__init__(None if name in ("kernel32", "ucrtbase", "ntdll") else name, *args, **options)

        def __getattr__(self, name):
            return self.own.get(name) or super().__getattr__(name)

    ctypes.CDLL = Library
sys.platform, platform.machine = system, lambda: machine
platform.system = lambda: {"win32": "Windows", "darwin": "Darwin"}[system]

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.threads import waiting

if system == "darwin":  # signatures by which macOS knows unused locks mean locked ones here
    waiting._LOCKS = {"darwin": waiting._LOCKS["darwin"]._replace(lock=0, condition=0)}
for module in pkgutil.walk_packages(nnc.__path__, "nnc."):
    if not module.name.endswith("__main__") and not module.name.startswith(("nnc.testing", "nnc.onnx")):
        __import__(module.name)

def loss(w, x):
    return nnp.sum(nnp.tanh(x @ w) ** 2) + nnc.fori_loop(0, 3, lambda i, t: t + nnp.sort(x[0])[i], 0.0)

step = nnc.compile(nnc.value_and_grad(loss))
w, x = np.ones((64, 64), np.float32) / 64, np.arange(256 * 64, dtype=np.float32).reshape(256, 64) / 1e4
for n in range(3):
    value, slope = step(w, x)
    eager, eager_slope = nnc.value_and_grad(loss)(w, x)
    np.testing.assert_allclose(value, eager, rtol=1e-5)
    np.testing.assert_allclose(slope, eager_slope, rtol=1e-4)
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.threads.threads import threads

jit = compiler()
assert jit is not None and not jit.engine.is_apart
assert {"win32": "@SleepConditionVariableSRW", "darwin": "@pthread_cond_wait"}[system] in jit.runtime.text
assert threads().pool.workers == 1, threads().describe()
from nnc.run.background import WRITER

for thread in threading.enumerate():
    if thread.name == WRITER:
        thread.join()
found = [name for _, _, names in os.walk(sys.argv[4]) for name in names]
assert found, "nothing was stored"
print(threads().describe())
"""
WINDOWS = (
    "fcntl resource termios pwd grp fork forkpty register_at_fork getuid geteuid getgid getegid setsid killpg uname sysconf "
    "sched_getaffinity sched_setaffinity O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_NONBLOCK SIGKILL SIGSTOP SIGCONT SIGUSR1 SIGCHLD "
    "SIGHUP SIGALRM setitimer alarm pthread_sigmask pthread_kill mkfifo fchmod fchown chown"
)


@pytest.mark.parametrize(("system", "lacking"), [("win32", WINDOWS), ("darwin", "sched_getaffinity sched_setaffinity")])
def test_compiled_functions_run_where_the_system_pretends_to_be_another_one(
    system: str, lacking: str, tmp_path: Path
) -> None:
    machine = {"x86_64": "AMD64" if system == "win32" else "x86_64"}.get(platform.machine(), "arm64")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "NNC_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "2", "NNC_CPU": "",
        "OPENBLAS_NUM_THREADS": "2", "NNC_TRACEBACK": "full",
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", PRETENDED, system, machine, lacking, str(tmp_path)],
        capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert run.stdout.startswith("2, nnc's own")


def _total(n: int) -> float:
    """Runs in another process: a compiled function, in threads."""
    before = nnc.set_num_threads(2)
    total = nnc.compile(lambda x: nnp.sum(nnp.sqrt(x) ** 2))(np.full(n, 0.25))
    nnc.set_num_threads(before)
    return float(total)


def test_functions_are_compiled_in_processes_that_are_spawned_rather_than_forked() -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(_total, [4, 400_000])) == [1.0, 100_000.0]
