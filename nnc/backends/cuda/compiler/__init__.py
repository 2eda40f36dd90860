"""Turns LLVM's text into PTX and machine code of GPUs."""
