"""How this processor rounds, as LLVM's text: programs that flush denormals to 0 set it, and threads take over their caller's.
Around calls of libraries whose threads do not take it over, denormals are kept (`nnc_keep_denormals`).

x86: the word MXCSR, of which bits 6 and 15 take denormal operands as 0 and make denormal results 0. aarch64: FPCR, whose bit 24
does both in float32 and float64. Conversions from and to float16 keep its denormals in either mode. On other processors nothing is
set.
"""

from __future__ import annotations

import platform

EXPORTS = ("nnc_float_mode", "nnc_set_float_mode", "nnc_flush_denormals", "nnc_keep_denormals")

_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i64 @nnc_float_mode() nounwind {
  %at = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %word = load volatile i32, ptr %at, align 4
  %mode = zext i32 %word to i64
  ret i64 %mode
}

define void @nnc_set_float_mode(i64 %mode) nounwind {
  %at = alloca i32, align 4
  %word = trunc i64 %mode to i32
  store volatile i32 %word, ptr %at, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}
"""

_AARCH64 = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define i64 @nnc_float_mode() nounwind {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}

define void @nnc_set_float_mode(i64 %mode) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
"""

_NONE = """
define i64 @nnc_float_mode() nounwind {
  ret i64 0
}

define void @nnc_set_float_mode(i64 %mode) nounwind {
  ret void
}
"""

_SWITCHES = """
define void @nnc_flush_denormals() nounwind {{
  %mode = call i64 @nnc_float_mode()
  %flushing = or i64 %mode, {bits}
  call void @nnc_set_float_mode(i64 %flushing)
  ret void
}}

define void @nnc_keep_denormals() nounwind {{
  %mode = call i64 @nnc_float_mode()
  %keeping = and i64 %mode, {others}
  call void @nnc_set_float_mode(i64 %keeping)
  ret void
}}
"""

_TEXTS = {
    "x86_64": (_X86, 0x8040),
    "AMD64": (_X86, 0x8040),
    "aarch64": (_AARCH64, 1 << 24),
    "arm64": (_AARCH64, 1 << 24),
}


def flushes_denormals(machine: str | None = None) -> bool:
    """Whether a processor has such a mode."""
    return (machine or platform.machine()) in _TEXTS


def float_mode_text(machine: str | None = None) -> str:
    """Returns the functions that read and set the mode, for a machine."""
    text, bits = _TEXTS.get(machine or platform.machine(), (_NONE, 0))
    return text + _SWITCHES.format(bits=bits, others=~bits)
