"""Kernels on one GPU through PyCUDA: loaded, launched, proved right, timed."""

from __future__ import annotations

from sweeper.backend.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
