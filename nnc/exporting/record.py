"""The record of an exported function: its operands and its quantities. The header and the JSON file say the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnc.base.html import format_bytes


@dataclass(frozen=True, slots=True)
class ExportedTensor:
    """An input or an output: row-major memory of the caller's.

    Attributes:
        path: its place in the arguments or in the result.
        shape: size of each axis.
        dtype: element type.
        strides: bytes from one position to the next, along each axis.
        bytes: bytes of its memory.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported function; `print` shows its quantities.

    Attributes:
        name: the C function.
        target: the processor that it is made for.
        threads: threads that share its loops; 0: none.
        constants: "inside" the object file, or in a "file" of their own.
        inputs: its inputs.
        outputs: its outputs.
        arena_bytes: bytes of the arena that a caller hands over.
        code_bytes: bytes of instructions.
        constant_bytes: bytes of constants.
        stack_bytes: bytes of the stack that a call takes at most, without functions of other libraries, in WebAssembly of the
            stack in linear memory; None where nnc cannot tell.
        flops: floating-point operations of a call; of a loop of unknown length, of one iteration.
        needs: the functions of other libraries that it calls.
        errors: the messages of the numbers that it returns.
        versions: the versions of nnc and llvmlite that made it.
    """

    name: str
    target: str
    threads: int
    constants: str
    inputs: tuple[ExportedTensor, ...]
    outputs: tuple[ExportedTensor, ...]
    arena_bytes: int
    code_bytes: int
    constant_bytes: int
    stack_bytes: int | None
    flops: int
    needs: tuple[str, ...]
    errors: dict[int, str]
    versions: dict[str, str]

    @property
    def has_pool(self) -> bool:
        """Whether threads other than the caller's share its loops."""
        return self.threads > 1

    @property
    def calls_lapack(self) -> bool:
        """Whether it calls LAPACK by name."""
        return any(name.endswith("_") and not name.startswith("_") for name in self.needs)

    def to_json(self) -> str:
        """Returns the record as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Exported:
        """Reads the record that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        for operands in ("inputs", "outputs"):
            fields[operands] = tuple(
                ExportedTensor(each["path"], tuple(each["shape"]), each["dtype"], tuple(each["strides"]), each["bytes"])
                for each in fields[operands]
            )
        fields["needs"] = tuple(fields["needs"])
        fields["errors"] = {int(code): message for code, message in fields["errors"].items()}
        return Exported(**fields)

    @property
    def quantities(self) -> dict[str, str]:
        """The quantities, in words."""
        stack = "unknown" if self.stack_bytes is None else format_bytes(self.stack_bytes)
        stack += " of linear memory" if self.target == "wasm32" else ""
        return {
            "arena": format_bytes(self.arena_bytes),
            "code": format_bytes(self.code_bytes),
            "constants": f"{format_bytes(self.constant_bytes)} ({'in a file' if self.constants == 'file' else 'inside'})",
            "stack": stack,
            "flops": str(self.flops),
            "needs": ", ".join(self.needs) or "no library",
        }

    def __str__(self) -> str:
        lines = [f"{self.name} for {self.target}, {self.threads or 'no'} threads"]
        lines += [f"  {name}: {value}" for name, value in self.quantities.items()]
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"  {kind} {i}: {x.path or 'the result'} {x.dtype}{list(x.shape)}" for i, x in enumerate(tensors)]
        return "\n".join(lines)


def record_in(folder: Path) -> Path | None:
    """Returns the JSON file of an exported folder; None where there is not exactly one."""
    found = sorted(folder.glob("*.json"))
    return found[0] if len(found) == 1 else None
