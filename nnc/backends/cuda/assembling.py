"""Turns LLVM's text of kernels into PTX.

An intrinsic that the processor lacks ends the process that compiles (LLVM aborts). So kernels are compiled in a process of their
own, apart from the one for the CPU; a text during which it ended is tried once more, alone, and then refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from nnc.backends.cpu.llvm import KERNEL
from nnc.backends.cpu.llvm_process import Answer, GoneError, Helper, find_command
from nnc.backends.cpu.llvmlite_library import find_library, llvmlite_version
from nnc.errors import InternalError
from nnc.machine import usable_threads

_THREADS = 4  # of the process: kernels of a program are compiled side by side
_NAME = re.compile(r"define ptx_kernel void @([\w.$]+)\(")
_DECLARATION = re.compile(r"^declare .*\n?", re.MULTILINE)


class PtxCompiler:
    """Compiles kernels for one graphics processor.

    Args:
        target: the processor, "sm_90" say.

    Raises:
        InternalError: there is no Python that could run the process.
    """

    def __init__(self, target: str) -> None:
        command = find_command(find_library(), min(usable_threads(), _THREADS), target)
        if command is None:
            raise InternalError(
                "kernels for graphics processors are compiled in a process of Python, and none was found"
            )
        self.target, self._helper = target, Helper(command)

    @property
    def made_for(self) -> Mapping[str, str]:
        """Facts on which PTX depends beside the text."""
        return {"machine": self.target, "llvm": f"llvmlite {llvmlite_version()}"}

    def compile_all(self, texts: Sequence[str]) -> list[str]:
        """Returns the PTX of modules, which are compiled side by side.

        Raises:
            InternalError: LLVM does not take a text.
        """
        answers = [self._helper.compile(text, KERNEL) for text in texts]
        return [self._finish(text, answer) for text, answer in zip(texts, answers, strict=True)]

    def _finish(self, text: str, answer: Answer | None) -> str:
        for _ in range(2):
            try:
                if answer is None:
                    raise InternalError("the process that compiles for graphics processors cannot be started")
                return answer.result().decode()
            except GoneError:
                answer = self._helper.compile(text, KERNEL)
            except RuntimeError as error:
                raise InternalError(f"LLVM does not take {_names(text)}: {error}") from error
        raise InternalError(
            f"LLVM ends while it compiles {_names(text)} for {self.target}: it uses what {self.target} lacks"
        )


def join(texts: Sequence[str]) -> str:
    """Returns several texts as one module, each declaration once.

    Args:
        texts: of kernels.
    """
    declarations = sorted({line.strip() for text in texts for line in _DECLARATION.findall(text)})
    return "\n".join([*declarations, *(_DECLARATION.sub("", text) for text in texts)])


def to_ptx(texts: Sequence[str], target: str) -> str:
    """Returns the PTX of kernels, as one module.

    Args:
        texts: of kernels.
        target: the processor, "sm_90" say.

    Raises:
        InternalError: LLVM does not take a text.
    """
    return _compiler(target).compile_all([join(texts)])[0]


@cache
def _compiler(target: str) -> PtxCompiler:
    return PtxCompiler(target)


def _names(text: str) -> str:
    """The kernels of a text, for messages."""
    return ", ".join(_NAME.findall(text)) or "a text"
