"""Turns LLVM's text into machine code of this process."""
