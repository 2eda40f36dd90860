"""Files that outlive a process: compiled programs, machine code, and measured choices."""
