"""The depth of the stack, read from assembly."""

from __future__ import annotations

from nnc.backends.llvm.stack import stack_bytes

CODE = """
outer:
	pushq	%rbx
	subq	$16, %rsp
	callq	leaf
	retq
leaf:
	vmovups	%ymm0, -40(%rsp)
	movl	%eax, -8(%rsp,%rcx,4)
	retq
"""


def test_functions_that_call_nothing_may_write_below_the_stack() -> None:
    """System V's red zone: up to 128 bytes, without moving the pointer."""
    assert stack_bytes(CODE, "leaf", "x86_64") == 8 + 40
    assert stack_bytes(CODE, "outer", "x86_64") == 8 + 8 + 16 + 8 + 40
    assert stack_bytes(CODE, "outer", "aarch64") is None
