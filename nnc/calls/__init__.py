"""What surrounds a call of a public function: its unknown arguments are worded, and like calls are remembered."""
