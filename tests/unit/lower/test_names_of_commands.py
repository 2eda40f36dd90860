"""Code that is printed, and backends, ask columns for facts of commands, and not for names: a command from outside has all of them.

Names that stay are listed here, each with its reason. A new one needs a column (nnc/commands/rules.py) rather than a line.
"""

from __future__ import annotations

import ast
from types import ModuleType

import pytest

from nnc.commands import contract, elementwise
from nnc.graph.registry import commutes
from tests.unit.lower.names_of_commands import names_commands, uses_in

ROOMS = ("nnc/lower/kernels", "nnc/backends")
MOST = 4  # uses that may stay

# By file and text: code that is for one command by its nature.
BY_NATURE = {
    (
        "nnc/lower/kernels/domain.py",
        "node.command is unit",
    ): "a unit holds nodes that were fused already; only lowering makes it",
    (
        "nnc/backends/cpu/kernels/products/epilogue.py",
        "epilogue.product.command is not dot",
    ): "the kernel prints the tiles of matrix products",
    (
        "nnc/backends/onednn/convolution.py",
        "epilogue.product.command is not conv",
    ): "the kernel calls oneDNN's convolution",
    (
        "nnc/backends/cuda/libraries/dot.py",
        "epilogue.product.command is not dot",
    ): "the kernel calls cuBLASLt's matrix product",
}
# Files in which the same words name other things.
OTHER_WORDS = {
    "nnc/lower/kernels/indexed.py": "values of the parameter `op` of scatter",
    "nnc/lower/kernels/integers.py": "functions of scalar expressions",
    "nnc/lower/kernels/math/complexes.py": "functions of scalar expressions",
    "nnc/lower/kernels/math/table.py": "functions of scalar expressions",
    "nnc/lower/kernels/scalars.py": "functions of scalar expressions",
    "nnc/lower/kernels/scalar_checks.py": "functions of scalar expressions",
    "nnc/backends/cpu/compiler/runtime.py": "functions of the C library",
    "nnc/backends/cuda/kernels/indexed.py": "values of the parameter `op` of scatter",
    "nnc/backends/cuda/kernels/functions.py": "functions of scalar expressions",
    "nnc/backends/onednn/library.py": "oneDNN's operations",
}


def test_facts_of_commands_are_read_in_columns() -> None:
    found = [use for room in ROOMS for use in uses_in(room)]
    named = {(use.file, use.text): use for use in found if use.file not in OTHER_WORDS or ".command" in use.text}
    new = [str(use) for key, use in named.items() if key not in BY_NATURE]
    assert not new, f"names of commands; give their fact a column instead: {new}"
    assert named.keys() == BY_NATURE.keys(), "a reason is left over"
    assert len(BY_NATURE) <= MOST
    assert OTHER_WORDS.keys() <= {use.file for use in found}, "a file has no such words any more"


MODULE = ModuleType("module")
vars(MODULE).update(
    add=elementwise.add, table=frozenset({"add", "mul"}), objects=(elementwise.add, contract.dot), column=commutes,
    ew=elementwise, modes=("add", "clip"), empty=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("node.command.name == 'add'", True),
        ("'dot' != name", True),
        ("node.command is add", True),
        ("node.command is ew.add", True),
        ("name in table", True),
        ("command not in objects", True),
        ("name in ('add', 'mul')", True),
        ("command in column", False),
        ("mode in modes", False),
        ("mode in empty", False),
        ("mode == 'clip'", False),
        ("node.command is other", False),
        ("TABLE[node.command.name]", True),
        ("TABLE[command]", False),
        ("TABLE.get(node.command.name, 1)", True),
        ("node.command.name.startswith('conv')", True),
        ("kernel.get(node.command, ())", False),
        ("{'add': 1, 'mul': 2, 'other': 3}", True),
        ("['add', 'sub']", True),
        ("('add', 'clip', 'wrap')", False),
        ("add_kernel('dot', kernel)", False),
    ],
)
def test_a_use_of_names_is_found(text: str, is_one: bool) -> None:
    assert names_commands(ast.parse(text, mode="eval").body, MODULE) == is_one
