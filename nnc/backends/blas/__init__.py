"""The BLAS and LAPACK that NumPy brings along, called from compiled programs: factorisations, solvers."""
