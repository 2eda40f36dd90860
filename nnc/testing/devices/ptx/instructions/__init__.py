"""Instructions by family: each file decodes its opcodes."""
