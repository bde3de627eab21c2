"""cuBLAS as the library's answer to a matrix product: what a plain call of `cublasGemmEx` gives."""

from __future__ import annotations

import contextlib

from sweeper.backend.cuda.cublas_api import load_cublas
from sweeper.backend.cuda.cublas_gemm import Gemm, gemm_of, neutral_environment, no_equivalent
from sweeper.backend.cuda.cublas_loading import CublasError, starting
from sweeper.errors import TrialFailed
from sweeper.model import Stage, Status

__all__ = ["Cublas", "gemm_of", "neutral_environment", "refusal"]

# Values of cublas_api.h.
_DEFAULT_ALGORITHM = -1
_ARCH_MISMATCH, _NOT_SUPPORTED = 8, 15


def refusal(library: str, gemm: Gemm, error: CublasError) -> TrialFailed:
    """What a failed call of `library` means: infeasible where it declines the types or sizes, else an error."""
    if error.status in (_ARCH_MISMATCH, _NOT_SUPPORTED):
        return no_equivalent(f"{library} does not support {gemm}")
    return TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, f"{library}: {error}")


class Cublas:
    """A cuBLAS handle in the current context, on one stream. Raises SetupError where there is no cuBLAS."""

    name = "cuBLAS"

    def __init__(self, stream_handle: int) -> None:
        neutral_environment()
        with starting(self.name):
            self._api = load_cublas()
            self._api.set_stream(stream_handle)
            self.version = self._api.version()

    def run(self, gemm: Gemm, a: int, b: int, c: int) -> None:
        """Queue C = A·B on device pointers.

        Raises TrialFailed: infeasible where cuBLAS declines the types or sizes, else a launch error.
        """
        mode, operand = gemm.mode, gemm.operand_type
        if not mode.plain:
            raise no_equivalent(f"cublasGemmEx has no operands of {gemm.operands}; cuBLASLt has")
        one, zero = mode.factors()
        try:
            self._api.set_math_mode(mode.math)
            sizes = int(gemm.transpose_b), int(gemm.transpose_a), gemm.n, gemm.m, gemm.k, one.ctypes.data
            left, right = (b, operand, gemm.ldb), (a, operand, gemm.lda)
            out, how = (c, gemm.output_type, gemm.ldc), (mode.compute, _DEFAULT_ALGORITHM)
            if gemm.batch == 1:
                self._api.gemm_ex(*sizes, *left, *right, zero.ctypes.data, *out, *how)
            else:
                apart_a, apart_b, apart_c = gemm.strides
                self._api.gemm_strided_batched_ex(
                    *(*sizes, *left, apart_b, *right, apart_a),
                    *(zero.ctypes.data, *out, apart_c, gemm.batch, *how),
                )
        except CublasError as error:
            raise refusal(self.name, gemm, error) from None

    def close(self) -> None:
        with contextlib.suppress(CublasError):
            self._api.close()
