"""The wording of `steptime data bench`: machine words in, sentences out."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

from steptime.core.units import format_bytes, format_count, format_seconds, format_speedup
from steptime.measure.values.loader_bench import (
    COLLATE,
    CONSUMER,
    COPY,
    DECODE,
    FETCH,
    PIN,
    TRANSFORM,
    BenchedLoader,
    LoaderBench,
)

PARTS: Mapping[str, str] = {
    FETCH: "fetch",
    DECODE: "decode",
    TRANSFORM: "transform",
    COLLATE: "collate",
    PIN: "pin",
    COPY: "copy to device",
    CONSUMER: "the training itself",
}
MEANINGS: Mapping[str, str] = {
    FETCH: "the data set's own code and its reads, without the parts below",
    DECODE: "calls of image and sound decoders",
    TRANSFORM: "the transforms of a chain",
    COLLATE: "samples joined to a batch",
    PIN: "the batch copied to pinned memory",
    COPY: "the batch copied to the device",
}
_REASONS: Mapping[str, str] = {
    "": "no such call",
    "no_device": "there is no device",
    "not_pinned": "the loader does not pin",
    "not_copied": "no copy was seen",
}
_LEVERS: Mapping[str, tuple[str, ...]] = {
    FETCH: ("whole_batch_fetch", "prepared_data", "dataset_cache", "dataloader"),
    DECODE: ("jpeg_decoder", "decoded_cache", "dataset_cache", "dataloader"),
    TRANSFORM: ("whole_batch_fetch", "dataset_cache", "dataloader"),
    COLLATE: ("whole_batch_fetch", "dataloader"),
    COPY: ("prefetch_to_device", "pinned_copies", "dataloader"),
}
_NOTES: Mapping[str, str] = {
    "shapes_differ": "Batches differ in shape, so several were kept and given in turn.",
    "consumer_beside_loader": "The pass with a kept batch made no step, so the training's own time "
    "is that between two batches of the loader.",
    "copy_in_consumer": "The loop needs its batches on the host, so the copy to the device counts "
    "as the training's own time.",
    "bound_by_waits": "The upper bound is from the waits of the loop with its loader: there are no "
    "workers beside the step, so nothing else of the loader can be saved. The two passes differ "
    "for another reason, as a neighbor on the machine.",
    "cold_no_files": "The data set opened no file that was seen, so nothing was read cold.",
    "cold_kept_in_memory": "Nothing came from a disk although the files were dropped from the page "
    "cache (they may be in memory, mapped, or on a file system that keeps them): no cold figures.",
    "cold_not_checked": "The kernel does not say whether the cold reads came from a disk.",
    "chunk_mismatch": "The chunks of the HDF5 file do not match what is read of it: those that are "
    "decoded hold over four times of what is asked for. Write it with a sample a chunk, or read "
    "whole chunks.",
    "cold_failed": "The cold pass failed.",
}


def describe_bottleneck(bench: LoaderBench) -> str:
    """Return what holds the step back, in one sentence."""
    if bench.loader is None:
        return describe_no_loader(bench)
    if bench.bound is None and bench.is_source and bench.bottleneck is not None:
        return f"Most of a batch is {PARTS[bench.bottleneck]}."
    if bench.bound is None:
        return "The loop ended before its steps could be timed: no bottleneck is named."
    bound = f"{format_speedup(bench.bound.estimate)}"
    low, high = format_speedup(bench.bound.low), format_speedup(bench.bound.high)
    within = f"{bound} ({low} to {high})"
    if bench.bottleneck == CONSUMER:
        return (
            "No loader helps: a step takes as long with a batch that is already there. Upper bound "
            f"of any gain: {within}."
        )
    if "bottleneck" in bench.missing:
        return (
            f"It is not clear whether a loader helps. Upper bound of any gain: {within}. A longer "
            "--window or a quieter machine may tell."
        )
    if bench.bottleneck is None:
        return f"The step waits for its batches. Upper bound of any loader's gain: {within}."
    name = PARTS[bench.bottleneck]
    return f"The step waits for {name}. Upper bound of any loader's gain: {within}."


def describe_no_loader(bench: LoaderBench) -> str:
    """Return why no loader was measured: what was seen, and what to do."""
    word, detail = bench.missing.get("loader", ""), bench.details.get("loader", "")
    if word == "command_failed":
        return f"The command failed before its loop was timed: {detail}."
    if word == "own_failure":
        return f"Steptime failed to time the loop: {detail}."
    if word == "tf_data":
        return "No torch DataLoader feeds this training; it reads its batches with tf.data."
    if word == "no_loader":
        return (
            f"The training made {detail} steps without a batch of a torch DataLoader: its data do "
            "not come through one, so there is no loader to measure. `steptime run` shows where "
            "its steps spend their time."
        )
    if word == "not_trained":
        return (
            f"A DataLoader gave {detail} batches, and no model was called on them with gradients: "
            "this command does not train with them. Give the command that trains."
        )
    if word == "few_batches":
        return (
            f"The training ended after {detail} batches, too few to time its loop. Give it more "
            "data or epochs."
        )
    return "The command ended without a step of a torch training. Give the command that trains."


def short_place(place: str) -> str:
    """Return a place without the folders of its file."""
    return place.rpartition("/")[2]


def describe_loader(loader: BenchedLoader) -> str:
    """Return what a loader reads, and how."""
    parts = [loader.dataset]
    if loader.num_samples is not None:
        parts.append(f"{format_count(loader.num_samples)} samples")
    elif loader.is_iterable:
        parts.append("iterable")
    if loader.batch_size is not None:
        parts.append(f"batches of {loader.batch_size}")
    if loader.num_bytes is not None:
        parts.append(format_bytes(loader.num_bytes))
        return ", ".join(parts)
    parts.append("1 worker" if loader.num_workers == 1 else f"{loader.num_workers} workers")
    if loader.place is not None:
        parts.append(f"made at {short_place(loader.place)}")
    return ", ".join(parts)


def describe_others(others: Sequence[BenchedLoader]) -> str:
    """Return what loaders were not timed: the first one, and how many more."""
    more = len(others) - 1
    return describe_loader(others[0]) + (f", and {more} more loader{'s' * (more > 1)}" * bool(more))


def describe_workers(bench: LoaderBench) -> str | None:
    """Return how many workers keep up with the step; None where that is not known."""
    needed, cores = bench.workers_needed, bench.cores_needed
    if needed is None or cores is None:
        return None
    many = "1 worker keeps" if needed == 1 else f"{format_count(needed)} workers keep"
    busy = f"{cores:.2g}" if cores < 10 else format_count(round(cores))
    here = "1 core" if bench.num_cores == 1 else f"{bench.num_cores} cores"
    if cores > bench.num_cores:
        return (
            f"No number of workers keeps up with the training here: that takes {busy} cores for "
            f"the loader alone, and there {'is' if bench.num_cores == 1 else 'are'} {here}."
        )
    return f"{many} up with the training ({busy} of {here} busy)."


def describe_reason(word: str | None) -> str:
    """Return why a part has no time."""
    return _REASONS.get(word or "", word or "")


def describe_notes(bench: LoaderBench) -> list[str]:
    """Return what a reader must know about the numbers."""
    told = [_NOTES.get(word, word) for word in bench.notes]
    if "parts" in bench.missing:
        why = bench.details.get("parts", "")
        told.append(f"Batches could not be read apart from the loop: {why}.")
    if "step_s" in bench.missing:
        told.append("No two batches of one epoch were seen, so no step was timed.")
    return told


def next_commands(bench: LoaderBench, *, levers: Collection[str]) -> list[str]:
    """Return the commands that follow, of the `levers` that there are; none if no loader helps."""
    if bench.is_source:
        return _conversion(bench)
    relieving = _LEVERS.get(bench.bottleneck or "")
    if relieving is None or bench.bound is None:
        return []
    names = ",".join(name for name in relieving if name in levers)
    return [f"steptime tune --levers {names} -- {shlex.join(bench.command)}"]


def _conversion(bench: LoaderBench) -> list[str]:
    """Return the command that prepares a source; it predicts its gain, and refuses a small one."""
    is_prepared = bench.loader is not None and bench.loader.dataset == "prepared data"
    if bench.bottleneck not in (FETCH, DECODE) or is_prepared:
        return []
    (where,) = bench.command
    words = [where, f"{where.rstrip('/')}.prepared", *(["--decode"] * (bench.bottleneck == DECODE))]
    return [f"steptime data convert {shlex.join(words)}"]


def per_sample(bench: LoaderBench) -> str | None:
    """Return the CPU time of a sample."""
    if bench.cpu_per_sample_s is None:
        return None
    return f"{format_seconds(bench.cpu_per_sample_s)} of CPU for a sample"
