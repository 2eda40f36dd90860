"""What is kept on disk between processes: compiled programs, machine code, and measured choices."""
