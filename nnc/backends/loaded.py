"""All backends of this package: importing this module registers their kernels."""

import nnc.backends.blas.lapack
import nnc.backends.blas.schur
import nnc.backends.cpu.arg_reduce
import nnc.backends.cpu.attention
import nnc.backends.cpu.attention_gradient
import nnc.backends.cpu.attention_tangent
import nnc.backends.cpu.complexes
import nnc.backends.cpu.dot
import nnc.backends.cpu.draws
import nnc.backends.cpu.epilogue
import nnc.backends.cpu.fit
import nnc.backends.cpu.fused
import nnc.backends.cpu.gather
import nnc.backends.cpu.packing
import nnc.backends.cpu.pooling
import nnc.backends.cpu.scan
import nnc.backends.cpu.scatter
import nnc.backends.cpu.search
import nnc.backends.cpu.shape
import nnc.backends.cpu.sort
import nnc.backends.cpu.threefry
import nnc.backends.cpu.top_k
import nnc.backends.cpu.triangular
import nnc.backends.mpi.kernels
import nnc.backends.onednn.convolution
import nnc.backends.onednn.matmul
import nnc.backends.onednn.pack  # noqa: F401
from nnc.backends.cpu.jit import compiler, expected_compiler
from nnc.backends.numpy_ref import candidate_kernels, choose_kernel

__all__ = ["candidate_kernels", "choose_kernel", "compiler", "expected_compiler"]
