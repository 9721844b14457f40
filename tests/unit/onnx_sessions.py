"""Sessions that compute networks of bytes exactly on every processor.

Without instructions for bytes (VNNI), ONNX Runtime's fused kernels add pairs of products in 16 bits
and saturate. There the nodes run one by one, in floats between their roundings.
"""

from __future__ import annotations

from typing import Any

from steptime.machine.inventory import HERE
from steptime.machine.processors import read_cpu
from steptime.quantize.inference import session_of

EXACT = {"avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm"}


def exact_session_of(model: Any) -> Any:
    """Return a session of an ONNX model."""
    if EXACT & set(read_cpu(HERE, num_usable=1).flags):
        return session_of(model)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
