"""LLVM, which turns text into machine code of the CPU and into PTX: in this process or in another one."""
