"""What a loader that feeds training is like, for the choice of levers; in a trial only.

Samples are read in a forked child: what that does to generators, caches and files ends with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from typing import Any

from ...watchers.inputs import batch_size_of
from ..trial_plan import lever_tool

NUM_SAMPLES = 8
"""A coin flip, from a generator of the data set's own, escapes notice once in 256 times."""

MIN_SAMPLES = 2
JPEG, PNG = "PIL.JpegImagePlugin.JpegImageFile", "PIL.PngImagePlugin.PngImageFile"
LIMIT_S, CHILD_LIMIT_S = 0.25, 5.0
"""For one pass of two or three, and for all of them: a trial lasts seconds."""

FRACTION = 0.5
"""Of the time in which a lever may read all rows: others may take longer than those read here."""


def describe_loader(torch: Any, loader: Any) -> dict[str, Any]:
    """Return the fields of `LoaderFacts` that are known without reading a sample."""
    data = torch.utils.data
    dataset = loader.dataset
    facts = {
        "dataset": type(lever_tool("input/datasets").innermost(dataset)).__name__,
        "num_workers": loader.num_workers,
        "batch_size": batch_size_of(loader),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "is_iterable": isinstance(dataset, data.IterableDataset),
        "has_own_sampler": not is_known_sampler(data, loader),
        "neighbor_sampling": lever_tool("input/neighbor_sampling").sampling_of(loader),
    }
    if facts["is_iterable"]:
        return facts
    rows = find_rows(torch, loader)
    if rows is not None:
        facts |= describe_rows(rows)
    shuffled = lever_tool("lengths/grouping").is_shuffled(torch, loader)
    return facts | {
        "num_samples": len(dataset),
        "is_shuffled": shuffled,
        "decodes_jpeg": True if lists_images(dataset, "JPEG_ENDINGS") else None,
        "decodes_png": True if lists_images(dataset, "PNG_ENDINGS") else None,
        "prepared": prepared_copy(dataset),
    }


def prepared_copy(dataset: Any) -> str:
    """Return the prepared copy beside the folder of a data set; empty where there is none."""
    chain = lever_tool("input/datasets").chain_of(dataset)
    roots = (vars(one).get("root") for one in chain if hasattr(one, "__dict__"))
    return next(filter(None, map(lever_tool("pictures/prepared").find_copy, roots)), "")


def describe_rows(rows: Any) -> dict[str, Any]:
    """Return what is known of a data set in memory without reading it."""
    exact = {"is_deterministic": not rows.draws, "is_collate_deterministic": True}
    if not hasattr(rows, "parts"):
        return exact | {"is_in_memory": True, "decodes_jpeg": False, "decodes_png": False}
    sizes = [part.nbytes // max(1, len(part)) for part in rows.parts]
    return exact | {"is_tensor_dataset": True, "sample_bytes": sum(sizes)}


def lists_images(dataset: Any, endings: str) -> bool:
    """Return whether a data set, or one that it wraps, lists files with such endings."""
    own = lever_tool("pictures/jpeg")
    lists = [
        own.listed_names(one, getattr(own, endings))
        for one in lever_tool("input/datasets").chain_of(dataset)
    ]
    return any(next(names, None) is not None for names in lists)


@contextmanager
def watched_images(name: str) -> Iterator[list[tuple[int, int]]]:
    """Note the images that Pillow decodes meanwhile by a class: it gives a list of their sizes."""
    module, _, class_name = name.rpartition(".")
    plugin, seen = sys.modules.get(module), list[tuple[int, int]]()
    if plugin is None:
        yield seen
        return
    image_class = getattr(plugin, class_name)
    own, original = vars(image_class).get("load"), image_class.load

    def load(image: Any) -> Any:
        if image.tile:
            seen.append(image.size)
        return original(image)

    image_class.load = load
    try:
        yield seen
    finally:
        if own is None:
            del image_class.load
        else:
            image_class.load = own


def probe_loader(torch: Any, loader: Any, *, clock: Callable[[], float] = perf_counter) -> Any:
    """Return whether samples are the same each time, and how large they are.

    The result is empty where this cannot be tried: nothing is known then.
    """
    is_map_style = not isinstance(loader.dataset, torch.utils.data.IterableDataset)
    if not is_map_style or not len(loader.dataset):
        return {}
    if find_rows(torch, loader) is not None:
        return {}  # known already
    read_apart = lever_tool("input/preloaded").read_apart
    found = read_apart(torch, lambda: read_twice(torch, loader, clock), limit_s=CHILD_LIMIT_S)
    if "error" in found:
        return {}  # keys of another kind, or none to compare
    kept = lever_tool("input/kept_samples").KeptSamples(torch, loader.dataset)
    head = read_apart(torch, kept.try_some, limit_s=CHILD_LIMIT_S)
    if head["error"]:
        return dict(found)
    return found | {"kept_bytes": head["num_bytes"], "saved_s": head["saved_s"]}


def read_twice(torch: Any, loader: Any, clock: Callable[[], float]) -> dict[str, Any]:
    """Read some samples twice, and make a batch of them twice."""
    own = lever_tool("input/datasets")
    random, dataset = lever_tool("tools/generators"), loader.dataset
    content_of, states, copy_of = own.content_of, random.random_states, own.copy_of
    indices = own.spread(len(dataset), NUM_SAMPLES)
    generators = random.Generators(torch, own.chain_of(dataset))
    dataset[indices[0]]  # the first reading imports, warns, and opens what stays open
    condition = lever_tool("input/preloaded").DataCondition(dataset, generators, has_files=True)
    began, before, first, copies = clock(), states(torch), [], []
    with watched_images(JPEG) as jpegs, watched_images(PNG) as pngs:
        for index in indices:
            sample = dataset[index]
            first.append(content_of(sample))
            copies.append(copy_of(sample))
            if len(first) >= MIN_SAMPLES and clock() - began > LIMIT_S:
                break
    took_s = clock() - began
    again = [content_of(dataset[index]) for index, _ in zip(indices, first)]
    facts = {
        "is_deterministic": again == first and states(torch) == before,
        "is_pure": condition.is_as_before(),
        "sample_bytes": max(size for _, size in copies),
        "sample_s": took_s / len(copies),
        "decodes_jpeg": bool(jpegs),
        "decodes_png": bool(pngs),
    }
    before, batches = states(torch), []
    samples = [copy_of(sample)[0] for sample, _ in copies]
    facts["joins_rows"] = lever_tool("input/preloaded").joins_rows(torch, loader, samples)
    for _ in range(2):
        samples = [copy_of(sample)[0] for sample, _ in copies]
        batch = loader.collate_fn(samples if loader.batch_sampler is not None else samples[0])
        try:
            batches.append(content_of(batch))
        except (TypeError, AttributeError):
            return facts  # a batch of the script's own class
    is_same = batches[0] == batches[1] and states(torch) == before
    return facts | {"is_collate_deterministic": is_same}


def probe_lengths(
    torch: Any, loader: Any, *, clock: Callable[[], float] = perf_counter
) -> dict[str, Any]:
    """Return where the lengths of all rows can be had cheaply; empty where nowhere."""
    dataset, own = loader.dataset, lever_tool("lengths/lengths")
    if isinstance(dataset, torch.utils.data.IterableDataset) or not len(dataset):
        return {}
    found = own.known_lengths(torch, dataset)
    if found is not None:
        return {"lengths_from": found[0]}
    if loader.num_workers:
        return {}
    random, spread = lever_tool("tools/generators"), lever_tool("input/datasets").spread
    put_back, states = random.keep_random_states(torch), random.random_states
    before, times, lengths = states(torch), [clock()], []
    try:
        for index in spread(len(dataset), NUM_SAMPLES):
            lengths.append(own.length_of(torch, dataset[index]))
            times.append(clock())
        took = sorted(after - start for start, after in pairwise(times))
        all_s = took[len(took) // 2] * len(dataset)  # one that had to wait says nothing of all
        is_cheap = states(torch) == before and all_s <= FRACTION * own.LIMIT_S
        return {"lengths_from": own.ROWS} if is_cheap and None not in lengths else {}
    except Exception:
        return {}  # keys of another kind
    finally:
        put_back()


def is_known_sampler(data: Any, loader: Any) -> bool:
    """Return whether torch's own samplers choose: they draw an epoch's order at its start."""
    known = [sampler for sampler in (loader.sampler, loader.batch_sampler) if sampler is not None]
    return all(type(sampler).__module__.startswith(data.__name__) for sampler in known)


def find_rows(torch: Any, loader: Any) -> Any:
    """Return the data set as plain rows of tensors, if torch's own collate joins them."""
    if loader.collate_fn is not torch.utils.data.default_collate:
        return None
    lever = lever_tool("input/whole_batch_fetch")
    if loader.batch_sampler is None:
        return None
    return lever.find_whole(torch, loader.dataset, is_forked_later=loader.num_workers > 0)
