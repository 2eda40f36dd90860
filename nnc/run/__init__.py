"""Programs: how they are stored, compiled to one function, bound to memory and called."""
