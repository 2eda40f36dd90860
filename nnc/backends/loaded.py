"""All backends of this package: importing this module registers their kernels."""

import nnc.backends.blas.lapack
import nnc.backends.blas.schur
import nnc.backends.cpu.fit
import nnc.backends.cpu.kernels.arg_reduce
import nnc.backends.cpu.kernels.attention.attention
import nnc.backends.cpu.kernels.attention.attention_gradient
import nnc.backends.cpu.kernels.attention.attention_tangent
import nnc.backends.cpu.kernels.complexes
import nnc.backends.cpu.kernels.draws
import nnc.backends.cpu.kernels.fused
import nnc.backends.cpu.kernels.moves.gather
import nnc.backends.cpu.kernels.moves.scatter
import nnc.backends.cpu.kernels.moves.shape
import nnc.backends.cpu.kernels.pooling
import nnc.backends.cpu.kernels.products.dot
import nnc.backends.cpu.kernels.products.epilogue
import nnc.backends.cpu.kernels.products.triangular
import nnc.backends.cpu.kernels.scan
import nnc.backends.cpu.kernels.sorts.search
import nnc.backends.cpu.kernels.sorts.sort
import nnc.backends.cpu.kernels.sorts.top_k
import nnc.backends.cpu.kernels.threefry
import nnc.backends.mpi.kernels
import nnc.backends.onednn.convolution
import nnc.backends.onednn.matmul
import nnc.backends.onednn.pack  # noqa: F401
from nnc.backends.cpu.compiler.jit import compiler, expected_compiler
from nnc.backends.numpy_ref import candidate_kernels, choose_kernel

__all__ = ["candidate_kernels", "choose_kernel", "compiler", "expected_compiler"]
