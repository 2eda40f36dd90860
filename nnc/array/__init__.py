"""Arrays with values: on the CPU and on devices."""
