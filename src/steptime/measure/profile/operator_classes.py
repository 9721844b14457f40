"""Decides to which class an operator or a kernel belongs, by its name alone.

In: a name as it is in a trace. Out: one of `measure.values.profiled.CLASSES`, or None where the
name says nothing and the caller's class decides. Torch is not available here, so there are lists.
"""

from __future__ import annotations

import re
from functools import cache

OTHER = "other"

WHOLE = frozenset(
    ("attention", "recurrent", "normalization", "convolution", "optimizer", "communication")
)
"""What runs inside an operator of these classes belongs to it, as the softmax of an attention."""

_MATMUL = frozenset(
    (
        *("addmm", "mm", "bmm", "baddbmm", "addbmm", "matmul", "linear", "mv", "addmv", "dot"),
        *("vdot", "ger", "addr", "outer", "inner", "einsum", "tensordot", "bilinear", "kron"),
        *("scaled_mm", "int_mm", "grouped_mm", "addmm_activation", "linear_backward"),
        *("chain_matmul", "linalg_multi_dot", "mkldnn_linear", "linear_pointwise", "trilinear"),
        *("scaled_grouped_mm", "mkldnn_linear_backward", "mkl_linear", "matmul_backward"),
    )
)
_COPY = frozenset(
    (
        *("copy", "to_copy", "to", "clone", "contiguous", "cat", "stack", "pin_memory", "repeat"),
        *("roll", "flip", "split_with_sizes_copy", "unbind_copy", "copy_from", "fused_cat"),
        *("unsafe_split", "hstack", "vstack", "tile", "repeat_interleave", "foreach_copy"),
        *("item", "local_scalar_dense"),
    )
)
_EMBEDDING = ("embedding",)
_SPARSE = (
    *("sparse", "spmm", "scatter", "gather", "index_select", "index_add", "index_put", "index"),
    *("segment_reduce", "index_copy", "index_fill", "unsafe_index", "take", "coalesce"),
)
_RECURRENT = (
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn_layer", "cudnn_rnn", "miopen_rnn"),
    *("thnn_fused_lstm_cell", "thnn_fused_gru_cell", "quantized_lstm"),
)
_NORMALIZATION = (
    *("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "softmax"),
    *("log_softmax", "weight_norm", "local_response_norm", "renorm", "normalize"),
)
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "flash_attn")
_ATTENTIONS = (*_ATTENTION, "flex_attention", "multi_head_attention", "fmha", "attention_forward")
_ELEMENTWISE = frozenset(
    (
        *("add", "sub", "rsub", "mul", "div", "neg", "abs", "pow", "sqrt", "rsqrt", "exp", "expm1"),
        *("log", "log1p", "log2", "sin", "cos", "tan", "tanh", "sigmoid", "relu", "relu6", "gelu"),
        *("silu", "mish", "elu", "celu", "selu", "leaky_relu", "prelu", "hardtanh", "hardswish"),
        *("hardsigmoid", "softplus", "threshold", "clamp", "clamp_min", "clamp_max", "where"),
        *("masked_fill", "lerp", "addcmul", "addcdiv", "reciprocal", "square", "sign", "erf"),
        *("floor", "ceil", "round", "trunc", "fmod", "remainder", "maximum", "minimum", "fmax"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "isnan"),
        *("isinf", "isfinite", "bitwise_and", "bitwise_or", "bitwise_not", "dropout", "glu"),
        *("native_dropout", "fused_dropout", "fill", "zero", "zeros", "ones", "full", "arange"),
        *("zeros_like", "ones_like", "full_like", "bernoulli", "rand", "randn", "rand_like"),
        *("randn_like", "uniform", "normal", "random", "randint", "randperm", "exponential"),
        *("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std"),
        *("var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp", "any", "all"),
        *("cumsum", "cumprod", "tril", "triu", "mse_loss", "l1_loss", "smooth_l1_loss"),
        *("huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"),
        *("nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss2d_forward", "nll_loss2d"),
        *("cross_entropy_loss", "atan", "asin", "acos", "atan2", "sinh", "cosh", "xlogy", "fmin"),
        *("log_sigmoid", "log_sigmoid_forward", "softshrink", "hardshrink", "logit", "nan_to_num"),
        *("amp_foreach_non_finite_check_and_unscale", "amp_update_scale", "constant_pad_nd"),
    )
)
_COMMUNICATION = (
    *("c10d", "_c10d_functional", "_dtensor::", "nccl:", "gloo:", "mpi:", "ucc:"),
    *("torch.distributed.ddp.reducer", "torch::distributed::reducer", "record_param_comms"),
    *("fsdp::", "symm_mem::"),
)
_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#", "aten::_fused_adam", "aten::_fused_sgd")
_OPTIMIZERS = (*_OPTIMIZER, "aten::_fused_adagrad")


@cache
def class_of_operator(name: str) -> str | None:
    """Return the class of an operator or range of the host; None if its name says nothing."""
    if name.startswith(_OPTIMIZERS):
        return "optimizer"
    if name.startswith(_COMMUNICATION):
        return "communication"
    if name.startswith(("triton_", "cpp_fused", "graph_cpp_fused")):
        return class_of_fused(name)
    if "flash_attn" in name or "flex_attention" in name:
        return "attention"
    space, _, short = name.rpartition("::")
    if not space or space.startswith(("autograd", "torch::autograd")) or " " in name:
        return None
    return _class_of_short(short.strip("_").lower())


def _class_of_short(short: str) -> str | None:
    """Return the class of a short name, such as `addmm` or `native_layer_norm_backward`."""
    forward = short.removesuffix("_backward")
    if any(word in short for word in _ATTENTIONS):
        return "attention"
    if "conv" in short.split("_") or re.match(r"(\w+_)?conv(\d|olution|_transpose|_depth)", short):
        return "convolution"
    if forward.startswith(_RECURRENT):
        return "recurrent"
    if any(word in short for word in _NORMALIZATION):
        return "normalization"
    if forward in _MATMUL or short in _MATMUL:
        return "matmul"
    if short.startswith(_EMBEDDING):
        return "embedding"
    if short.startswith(_SPARSE) and not short.startswith("sparse_resize"):
        return "sparse"
    if forward in _COPY:
        return "copy"
    if forward in _ELEMENTWISE or short.startswith("foreach_"):
        return "elementwise"
    return None


@cache
def class_of_fused(name: str) -> str:
    """Return the class of a kernel that a compiler fused, by the operators in its name."""
    if re.search(r"attention|flex", name):
        return "attention"
    if re.search(r"conv", name):
        return "convolution"
    if re.search(r"_tem_|_mm_|_bmm_|addmm", name):
        return "matmul"
    if re.search(r"norm|softmax", name):
        return "normalization"
    if re.search(r"embedding", name):
        return "embedding"
    return "elementwise"


# Words in a kernel's name, in this order: a fused attention has `gemm` in its name too.
_KERNELS = (
    ("communication", r"nccl|rccl|AllReduce|AllGather|ReduceScatter|SendRecv"),
    ("attention", r"flash_(fwd|bwd|attn)|fmha|attention|sdpa"),
    ("optimizer", r"multi_tensor_apply.*(adam|sgd|lamb|lion)|[Ff]used(Adam|Sgd)|adam"),
    ("recurrent", r"lstm|gru_|RNN|elemWiseRNN|persistRNN"),
    ("convolution", r"convol|conv\dd|_conv_|wgrad|dgrad|fprop|implicit_gemm|winograd"),
    ("normalization", r"(layer|batch|group|rms|instance)_?norm|[Ss]oft[Mm]ax|RowwiseMoments"),
    ("embedding", r"embedding"),
    ("sparse", r"spmm|csr|\bcoo_|scatter|gather|index_|sparse"),
    ("matmul", r"gemm|gemv|cutlass|xmma|_mm_|s\d+gemm|nvjet|cublas|dot_kernel|splitK"),
    ("copy", r"Memcpy|Memset|CatArray|direct_copy|copy_kernel|bfloat16_copy|float16_copy"),
    ("elementwise", r"elementwise|reduce|pointwise|dropout|multi_tensor_apply|fill|distribution"),
)
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KERNELS)


@cache
def class_of_kernel(name: str) -> str:
    """Return the class of what ran on a device."""
    if name.startswith("triton_"):
        return class_of_fused(name)
    for kind, pattern in _PATTERNS:
        if pattern.search(name):
            return kind
    return OTHER
