"""Names the algorithm of a convolution on a device, by the kernel's name alone.

In: a kernel's name as it is in a trace. Out: a word of `ALGORITHMS`, or None where the name says
nothing. The names are cuDNN's, CUTLASS's and torch's own, as traces of others show them; untested
on a device of ours.

Source: the kernel names in pytorch/pytorch#13412 and apache/mxnet#14684; cuDNN's own words are in
https://docs.nvidia.com/deeplearning/cudnn/latest/api/cudnn-cnn-library.html (Fwd/BwdAlgo).
"""

from __future__ import annotations

import re
from functools import cache

# In this order: Winograd and FFT also multiply matrices.
_PATTERNS = (
    ("winograd", r"winograd"),
    ("fft", r"fft[12]d|vector_fft|regular_fft|flip_filter|[cg]gemm_|cf32"),
    ("gemm", r"im2col|col2im|vol2col|col2vol"),
    ("direct", r"depthwise|grouped_direct|_direct_|conv2d_c1_k1|conv1d_c1_k1"),
    (
        "implicit_gemm",
        r"implicit_convolve|implicit_gemm|implicitgemm|fprop|dgrad|wgrad|scudnn|\d+cudnn"
        r"|convolve_common|precomputed",
    ),
)
_COMPILED = tuple((word, re.compile(pattern, re.IGNORECASE)) for word, pattern in _PATTERNS)

ALGORITHMS = tuple(word for word, _ in _PATTERNS)


@cache
def convolution_algorithm(name: str) -> str | None:
    """Return the algorithm of a convolution's kernel; None where its name does not say it."""
    for word, pattern in _COMPILED:
        if pattern.search(name):
            return word
    return None
