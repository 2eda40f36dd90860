"""Training steps and collectives on several processes: how they scale, beside bare mpi4py, and a plan for more ranks."""
