"""The names of operators without a matrix product, and what they do instead.

Torch itself tags most of the elementwise ones. In: nothing. Out: tables for `flops.py`.
"""

from __future__ import annotations

CLASSES = (
    *("matmul", "convolution", "attention", "recurrent"),
    *("normalization", "elementwise", "view", "embedding", "sparse", "communication", "other"),
)
MATMUL, CONVOLUTION, ATTENTION, RECURRENT = CLASSES[:4]
NORMALIZATION, ELEMENTWISE, VIEW, EMBEDDING, SPARSE, COMMUNICATION, OTHER = CLASSES[4:]

LOOKUPS = {
    **dict.fromkeys(("aten::embedding", "aten::embedding_dense_backward"), EMBEDDING),
    **dict.fromkeys(("aten::index_select", "aten::gather", "aten::index"), SPARSE),
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), SPARSE),
    **dict.fromkeys(("aten::_unsafe_index_put", "aten::scatter", "aten::scatter_"), SPARSE),
    **dict.fromkeys(("aten::_unsafe_index", "aten::index_copy", "aten::index_fill"), SPARSE),
}
"""Lookups and their gradients count as no FLOPs, as in every published convention."""

EXCHANGES = (
    *("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"),
    *("_dtensor", "fsdp"),
)
"""Namespaces of communication between ranks, with the copies before and behind it."""

MARKS = "profiler"
"""The namespace of marks for a profiler, which DDP makes, too: they are no work."""

IDLE = (*EXCHANGES, MARKS)
"""Namespaces without products."""

MOVES = frozenset(
    f"aten::{name}"
    for name in (
        *("clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "repeat", "roll", "flip"),
        *("fill_", "zero_", "zeros", "ones", "full", "empty", "empty_like", "zeros_like"),
        *("ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_empty"),
        *("empty_strided", "new_empty_strided", "arange", "eye", "scalar_tensor", "slice_backward"),
        *("select_backward", "constant_pad_nd", "tril", "triu", "one_hot", "_local_scalar_dense"),
        *("bernoulli_", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randperm"),
        *("uniform_", "normal_", "randint", "random_", "resize_", "set_", "lift_fresh"),
        *("lift_fresh_copy", "diagonal_backward", "unfold_backward", "as_strided_scatter"),
        *("slice_scatter", "select_scatter", "_sparse_coo_tensor_with_dims_and_tensors", "nonzero"),
        *("_coalesced_", "_coalesce", "is_same_size", "_nnz", "native_dropout_backward"),
        *("split_with_sizes_copy", "unbind_copy", "reflection_pad2d", "replication_pad2d"),
        *("_reshape_copy", "to_sparse", "_to_sparse", "_to_sparse_csr", "equal"),
        *("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "_linalg_check_errors"),
        *("masked_scatter", "masked_scatter_", "take", "put_", "index_copy_", "index_fill_"),
        *("repeat_interleave", "sparse_mask", "_to_dense", "_spdiags", "trace", "diag_embed"),
        *("multinomial", "normal", "exponential_", "log_normal_", "geometric_", "cauchy_"),
        *("linspace", "logspace", "range", "tril_indices", "triu_indices", "empty_permuted"),
        *("_pack_padded_sequence", "_unsafe_masked_index", "embedding_renorm_", "resize_as_"),
        *("_efficientzerotensor", "zeros_like_", "pixel_shuffle", "pixel_unshuffle", "tril_"),
        *("_nested_tensor_from_tensor_list", "_nested_tensor_size", "_nested_tensor_strides"),
        *("_nested_tensor_storage_offsets", "_nested_view_from_buffer", "to_padded_tensor"),
        *("_nested_from_padded_tensor", "_jagged_to_padded_dense_forward"),
        *("_padded_dense_to_jagged_forward", "nested_to_padded_tensor"),
        *(
            "triu_",
            "_chunk_cat",
            "_copy_from",
            "_pin_memory",
            "_stack",
            "block_diag",
            "channel_shuffle",
        ),
        *("copy", "rot90", "narrow_copy", "diagonal_scatter", "masked_scatter_backward", "zero"),
        *("fill", "set", "resize", "put", "random", "uniform", "exponential", "geometric"),
        *("cauchy", "log_normal", "normal_functional", "randint_like", "poisson", "binomial"),
        *("nonzero_static", "_to_sparse_bsr", "_to_sparse_bsc", "_to_sparse_csc", "to_mkldnn"),
        *("sparse_compressed_tensor", "_sparse_mask_projection", "sparse_resize_", "is_coalesced"),
        *("_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "dense_dim"),
        *("_validate_compressed_sparse_indices", "sparse_dim", "is_pinned", "record_stream"),
        *("_assert_async", "_functional_assert_async", "_fused_sdp_choice", "is_set_to"),
        *("_has_same_storage_numel", "_fill_mem_eff_dropout_mask_", "_assert_tensor_metadata"),
        *("_nested_from_padded", "_nested_get_values_copy", "_nested_select_backward"),
        *(f"{kind}_copy" for kind in ("alias", "as_strided", "detach", "diagonal", "expand")),
        *(f"{kind}_copy" for kind in ("permute", "select", "slice", "split", "squeeze", "t")),
        *(f"{kind}_copy" for kind in ("transpose", "unfold", "unsqueeze", "view", "values")),
        *(f"{kind}_copy" for kind in ("view_as_complex", "view_as_real", "_conj", "_values")),
    )
)
"""These move or make elements and compute none."""

VIEWS = frozenset(
    f"aten::{name}_" for name in ("as_strided", "detach", "squeeze", "t", "transpose", "unsqueeze")
)
"""These make a view of their tensor in its place; torch says so itself of those that return one."""

UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"),
        *("empty_permuted", "resize_", "set_", "resize_as_"),
    )
)
"""Of these, what they return has no elements yet: somebody else writes them."""

COPIES = frozenset(
    f"aten::{name}"
    for name in (
        *("clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "repeat", "roll", "flip"),
        *("_reshape_copy", "lift_fresh_copy", "constant_pad_nd", "to_sparse", "_to_sparse"),
        *("_to_sparse_csr", "_to_dense", "split_with_sizes_copy", "unbind_copy", "unsafe_split"),
        *("unsafe_split_with_sizes", "unsafe_chunk", "slice_backward", "select_backward"),
        *("repeat_interleave", "alias_copy", "view_copy", "permute_copy", "transpose_copy"),
    )
)
"""What these return is a copy of their argument."""

ADDITIONS = ("aten::add", "aten::add_")
"""Autograd adds up gradients with these."""

REDUCTIONS = frozenset(
    f"aten::{name}"
    for name in (
        *("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std"),
        *("var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp", "any", "all"),
        *("cumsum", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward"),
        *("nll_loss2d_backward", "binary_cross_entropy", "binary_cross_entropy_backward"),
        *("mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward"),
        *("huber_loss", "huber_loss_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
        *("_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell_backward"),
        *("native_dropout", "_fused_dropout", "addr", "ger", "value_selecting_reduction_backward"),
        *("masked_fill", "masked_fill_", "where", "lerp", "_sparse_sum", "gelu_backward"),
        *("aminmax", "topk", "sort", "argsort", "median", "kthvalue", "cumprod", "bincount"),
        *("_ctc_loss", "_ctc_loss_backward", "_masked_scale", "logcumsumexp", "_logcumsumexp"),
        *("multi_margin_loss", "multi_margin_loss_backward", "dist", "nansum", "native_norm"),
        *("multilabel_margin_loss_forward", "multilabel_margin_loss_backward", "nanmedian"),
        *("_segment_reduce_backward", "_prelu_kernel", "_prelu_kernel_backward", "mode"),
        *("log_sigmoid_forward", "log_sigmoid_backward", "glu", "glu_backward", "celu"),
        *("rrelu_with_noise", "rrelu_with_noise_backward", "soft_margin_loss_backward"),
        *("hardswish", "hardswish_", "hardswish_backward", "hardsigmoid_backward"),
        *("soft_margin_loss", "binary_cross_entropy_with_logits"),
        *("_unsafe_masked_index_put_accumulate", "_cummax_helper", "_cummin_helper"),
        *("softplus_backward", "logit_backward", "unique_dim", "_unique2", "searchsorted"),
        *("masked_select", "count_nonzero", "histc", "cummax", "cummin", "diff", "isin"),
        *("_unique", "unique_consecutive", "unique_dim_consecutive", "bucketize", "histogram"),
        *("allclose", "_is_all_true", "_is_any_true", "_aminmax", "cumsum_", "cumprod_", "addr_"),
        *("complex", "polar", "floor_divide", "floor_divide_", "linalg_cross", "_add_relu"),
        *("_standard_gamma", "_standard_gamma_grad", "_sample_dirichlet", "_dirichlet_grad"),
        *("quantize_per_tensor", "quantize_per_channel", "dequantize", "rrelu_with_noise_"),
        *("fake_quantize_per_tensor_affine_cachemask", "_fused_moving_avg_obs_fq_helper"),
        *("fake_quantize_per_channel_affine_cachemask", "_transform_bias_rescale_qkv"),
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        *(f"_fake_quantize_learnable_per_{of}_affine" for of in ("tensor", "channel")),
        *(f"_fake_quantize_learnable_per_{of}_affine_backward" for of in ("tensor", "channel")),
        *("_sparse_softmax", "_sparse_softmax_backward_data", "_sparse_log_softmax"),
        *("_sparse_log_softmax_backward_data", "_sparse_sum_backward", "_sparse_csr_sum"),
        *("_nested_sum_backward", "_nested_tensor_softmax_with_shape", "_cudnn_ctc_loss"),
        *(
            f"_fused_{name}{end}"
            for name in ("adam", "adamw", "sgd", "adagrad")
            for end in ("", "_")
        ),
    )
)
NORMS = (
    *("native_layer_norm", "layer_norm", "native_batch_norm", "batch_norm", "cudnn_batch_norm"),
    *("native_group_norm", "fused_rms_norm", "fused_layer_norm", "rms_norm", "softmax"),
    *(
        "log_softmax",
        "safe_softmax",
        "masked_softmax",
        "weight_norm",
        "miopen_batch_norm",
        "renorm",
        "instance_norm",
    ),
)
WINDOWS = (
    *("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "upsample"),
    *("fractional_max_pool", "mkldnn_max_pool", "im2col", "col2im", "max_unpool"),
    *("grid_sampler", "affine_grid", "cudnn_grid_sampler", "cudnn_affine_grid"),
    *("reflection_pad", "replication_pad", "mkldnn_adaptive_avg_pool"),
)
"""Pooling and resizing: one operation for each element, as for everything that is no product."""
