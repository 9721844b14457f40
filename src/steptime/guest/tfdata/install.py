"""Puts the two hooks on tf.data in place, in a process that a bench has started."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from ..sites.file_owners import FileOwners
from .model_reads import ModelReads
from .pipeline_calls import PipelineCalls


def start_tf_data(dataset_ops: Any, run: str) -> ModelReads:
    """Note the calls that make pipelines, and read each pipeline that runs.

    Args:
        dataset_ops: TensorFlow's module of that name, just executed.
        run: the run's folder.
    """
    calls = PipelineCalls(FileOwners(_package(dataset_ops)))
    reads = ModelReads(run, read_model)
    calls.hook(dataset_ops.DatasetV2, guarded)
    hook_iterators(sys.modules["tensorflow.python.data.ops.iterator_ops"], calls, reads)
    return reads


def hook_iterators(iterator_ops: Any, calls: PipelineCalls, reads: ModelReads) -> None:
    """Begin to read each iterator that is made outside of a graph."""
    owner = iterator_ops.OwnedIterator
    original = owner._create_iterator

    def _create_iterator(self: Any, dataset: Any) -> None:
        original(self, dataset)
        guarded(see, self, dataset)

    def see(iterator: Any, dataset: Any) -> None:
        if hasattr(iterator._iterator_resource, "numpy"):  # in a graph nothing runs yet
            reads.see(iterator, calls.chain(dataset))

    owner._create_iterator = functools.update_wrapper(_create_iterator, original)


def read_model(resource: Any) -> Any:
    """Return tf.data's model of an iterator.

    Raises:
        Exception: TensorFlow's NotFoundError where the pipeline's autotuning is switched off.

    Source: `tf.data.experimental.get_model_proto`, which wants the iterator itself alive.
    """
    from tensorflow.core.framework import model_pb2
    from tensorflow.python.ops import gen_experimental_dataset_ops as operators

    return model_pb2.ModelProto.FromString(operators.iterator_get_model_proto(resource).numpy())


def guarded(act: Callable[..., None], *args: Any) -> None:
    """Do it; a failure of ours never reaches the script."""
    try:
        act(*args)
    except Exception:
        return


def _package(module: Any) -> Any:
    """Return TensorFlow's package: the folder whose code is not the user's."""
    package = sys.modules.get("tensorflow", module)
    return package if os.path.basename(str(getattr(package, "__file__", ""))) else module
