"""Each lever of ours keeps the contract that other people's have to keep."""

from pathlib import Path

import pytest

from steptime.levers import NAMES, load
from steptime.levers.lever_evidence import EVIDENCE, evidence_of
from steptime.testing.levers import LeverContract


@pytest.fixture(params=NAMES)
def lever(request):
    return load(request.param)


class TestLevers(LeverContract):
    pass


ROOT = Path(__file__).resolve().parent.parent.parent
WITH_EVIDENCE = (
    *("autocast", "matmul_precision", "fused_optimizer", "channels_last", "compile"),
    *("num_threads", "wait_policy", "allocator", "dataloader", "whole_batch_fetch"),
    *("jpeg_decoder", "batched_transform", "decoded_cache", "prepared_data", "scaled_decoding"),
    *("dataset_cache", "trim_padding", "length_grouping", "fused_attention", "fused_rnn"),
    *("fused_gelu", "sparse_input"),
    *("pinned_copies", "gc_control", "set_to_none", "process_binding", "no_pin_memory"),
    *("activation_checkpointing", "no_checkpointing", "module_precision", "micro_batches"),
    *("ddp_options", "ddp_no_sync", "ddp_bf16", "nccl_settings", "interpreter"),
    *("no_compile", "dynamic_shapes", "cudnn_benchmark", "deferred_reads", "prefetch_to_device"),
    *("selective_checkpointing", "optimizer_in_backward", "no_foreach"),
    *("flush_denormal", "no_anomaly_mode", "no_profiler", "no_deterministic"),
    *("maxk", "fused_sampling", "progressive_length", "other_optimizer", "gradient_transform"),
    *("larger_batch", "ddp_powersgd", "rate_factor", "weight_averaging", "low_memory_states"),
    *("offload_activations", "return_freed_memory", "vectorized_loops"),
)
"""Levers whose gains have been looked up and measured; a new lever joins when it has some."""


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_a_lever_says_what_it_gave(name):
    assert evidence_of(load(name))


@pytest.mark.parametrize("name", NAMES)
def test_our_own_evidence_is_in_the_repository(name):
    sources = {one.source for one in evidence_of(load(name))}

    ours = [source for source in sources if not source.startswith("https://")]
    assert [source for source in ours if not (ROOT / source.partition("#")[0]).is_file()] == []


def test_there_is_no_evidence_of_a_lever_that_is_not_there():
    assert set(EVIDENCE) <= set(NAMES)
