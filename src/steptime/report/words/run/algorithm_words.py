"""The words for the algorithms by which a device computes a convolution."""

from __future__ import annotations

from collections.abc import Mapping

ALGORITHMS: Mapping[str, str] = {
    "winograd": "Winograd",
    "fft": "FFT",
    "implicit_gemm": "implicit GEMM",
    "gemm": "GEMM of unrolled patches",
    "direct": "direct sums",
}
