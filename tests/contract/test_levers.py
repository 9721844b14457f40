"""Each lever of ours keeps the contract that other people's have to keep."""

import inspect
import sys
from pathlib import Path
from unittest import SkipTest

import pytest

from steptime.levers import NAMES, load
from steptime.levers.lever_evidence import EVIDENCE, evidence_of
from steptime.testing.levers import LeverContract

PROMISES = [name for name in vars(LeverContract) if name.startswith("test_")]


@pytest.mark.parametrize("promise", PROMISES)
def test_every_lever_keeps_this_promise(promise, tmp_path):
    test = getattr(LeverContract(), promise)
    more = {"tmp_path": tmp_path} if "tmp_path" in inspect.signature(test).parameters else {}
    broken = {}
    for name in NAMES:
        try:
            test(lever=load(name), **more)
        except SkipTest:
            continue
        except Exception as error:
            broken[name] = repr(error)
        finally:
            if "torch._dynamo" in sys.modules:  # what one lever compiled is nothing to the next
                sys.modules["torch"].compiler.reset()
    assert broken == {}


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


def test_a_lever_says_what_it_gave():
    assert [name for name in WITH_EVIDENCE if not evidence_of(load(name))] == []


def test_our_own_evidence_is_in_the_repository():
    sources = {one.source for name in NAMES for one in evidence_of(load(name))}

    ours = [source for source in sources if not source.startswith("https://")]
    assert [source for source in ours if not (ROOT / source.partition("#")[0]).is_file()] == []


def test_there_is_no_evidence_of_a_lever_that_is_not_there():
    assert set(EVIDENCE) <= set(NAMES)
