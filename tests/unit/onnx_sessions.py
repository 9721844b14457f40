"""Sessions that compute networks of bytes exactly on every processor.

Without instructions for bytes (VNNI), ONNX Runtime's fused kernels add pairs of products in 16 bits
and saturate. There the nodes run one by one, in floats between their roundings.
"""

from __future__ import annotations

from typing import Any

from steptime.app.quantize.quantize_model import _units
from steptime.quantize.inference import session_of


def exact_session_of(model: Any) -> Any:
    """Return a session of an ONNX model."""
    if _units():
        return session_of(model)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
