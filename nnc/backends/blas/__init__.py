"""The BLAS and LAPACK that NumPy brings along, called from compiled programs: float64 products, factorisations, solvers."""
