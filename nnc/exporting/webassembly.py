"""Links an export for WebAssembly to a module, where wasm-ld is at hand, and writes its loader in JavaScript."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from nnc.errors import BackendError, user_error
from nnc.exporting.record import Exported

_TEMPLATE = Path(__file__).with_name("loader.mjs")
_STACK_BYTES = 1 << 20


def write_module(folder: Path, exported: Exported, alignment: int) -> None:
    """Writes `NAME.wasm` and `NAME.mjs` beside the object file; nothing where there is no linker.

    Raises:
        BackendError: the linker fails.
    """
    linker = shutil.which("wasm-ld")
    if linker is None:
        return
    name = exported.name
    exports = [f"--export={each}" for each in (name, f"{name}_error", "__heap_base")]
    command = [linker, "--no-entry", "--allow-undefined", "-z", f"stack-size={_STACK_BYTES}", *exports]
    done = subprocess.run(
        [*command, f"{name}.o", "-o", f"{name}.wasm"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        problem = f"{linker} cannot link the module: {done.stderr.strip()}."
        raise user_error(BackendError, "nnc.export", problem, fix="use another version of LLVM's linker.")
    (folder / f"{name}.mjs").write_text(_loader(exported, alignment), encoding="utf-8")


def _loader(exported: Exported, alignment: int) -> str:
    values = {
        "INPUTS": json.dumps([{"path": x.path, "dtype": x.dtype, "bytes": x.bytes} for x in exported.inputs]),
        "OUTPUTS": json.dumps([{"path": x.path, "dtype": x.dtype, "bytes": x.bytes} for x in exported.outputs]),
        "ARENA_BYTES": str(exported.arena_bytes),
        "ALIGNMENT": str(alignment),
    }
    text = re.sub(r"\bNAME(?=\b|_error)", exported.name, _TEMPLATE.read_text(encoding="utf-8"))
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        if (found := re.match(r"const (\w+) = .*;$", line)) and found[1] in values:
            lines[i] = f"const {found[1]} = {values[found[1]]};\n"
    return "".join(lines)
