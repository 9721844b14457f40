"""Edits of the calls that make DataLoaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from steptime.levers.input.datasets import IN_MEMORY
from steptime.patch.arguments import find_argument, set_arguments
from steptime.patch.changes import Beginning, CallChange, Change, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground, words_of
from steptime.patch.source_file import SourceFile
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.site_values import EditSite

POSITIONS = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
    *("collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator"),
)
"""What DataLoader takes by position, in order."""

REORDERED = "From the second epoch on, a shuffled loader gives its samples in another random order."
UNLIMITED = "It keeps all samples in memory; the recipe kept a quarter of the free memory at most."
IN_THE_DATA_SET = (
    "What the recipe keeps lies inside the data set, before its random transforms, or in a file."
)
MADE_ONCE = (
    "It makes all samples once, before the first step, and keeps them in memory; the recipe makes "
    "each batch of them when it is needed."
)

_OF_WORKERS = ("persistent_workers", "prefetch_factor", "timeout")

_WHOLE = '''\
class {name}({torch}.utils.data.Dataset):
    """Takes each batch out of a TensorDataset, or a Subset of one, at once."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]

    def __getitems__(self, indices):
        data = self.data
        while isinstance(data, {torch}.utils.data.Subset):
            indices, data = [data.indices[index] for index in indices], data.dataset
        index = {torch}.tensor(indices)
        return [part.index_select(0, index.to(part.device)) for part in data.tensors]
'''

_AS_IT_IS = '''\
def {name}(batch):
    """Return a batch that is collated already."""
    return batch
'''

_CACHED = '''\
class {name}({torch}.utils.data.Dataset):
    """Keeps the samples of a data set once they were read."""

    def __init__(self, data):
        self.data = data
        self.samples = {{}}

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        if index not in self.samples:
            self.samples[index] = self.data[index]
        return self.samples[index]
'''


_PRELOADED = '''\
class {name}({torch}.utils.data.Dataset):
    """Makes all samples of a data set once, and takes each batch out of them."""

    def __init__(self, data):
        self.data = data
        samples = [data[index] for index in range(len(data))]
        self.parts = {torch}.utils.data.default_collate(samples)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]

    def __getitems__(self, indices):
        return self.rows(self.parts, {torch}.tensor(indices))

    def rows(self, part, index):
        if isinstance(part, dict):
            return {{key: self.rows(value, index) for key, value in part.items()}}
        if isinstance(part, (list, tuple)):
            return type(part)(self.rows(value, index) for value in part)
        return part.index_select(0, index)
'''

_TRIMMED = '''\
class {name}:
    """Cuts the batches of a collate function behind their longest row, by their attention mask."""

    def __init__(self, collate):
        self.collate = collate

    def __call__(self, samples):
        batch = self.collate(samples)
        mask = batch.get("attention_mask") if hasattr(batch, "get") else None
        if mask is None or not mask.any():
            return batch
        length = int(mask.any(0).nonzero().max()) + 1
        length = -(-length // {multiple}) * {multiple}
        for name, part in batch.items():
            if part.shape[:2] == mask.shape:
                batch[name] = part[:, :length].contiguous()
        return batch
'''

ONLY_MAPPINGS = "It cuts batches that are mappings with an `attention_mask`; others stay whole."


def set_workers(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """The arguments of the loaders that feed the training."""
    take(settings, "num_workers", "persistent_workers", "prefetch_factor", "pin_memory")
    values = {name: repr(value) for name, value in settings.items()}
    dropped = () if settings["num_workers"] else _OF_WORKERS
    sites = [site for site in ground.sites("loader") if "iterable" not in site.traits]
    note = REORDERED if settings.get("persistent_workers") else None
    return _set(ground, needed_sites(sites), values, dropped=dropped, note=note)


def _set(
    ground: Ground,
    sites: Sequence[EditSite],
    values: Mapping[str, str],
    *,
    dropped: Sequence[str] = (),
    note: str | None = None,
) -> list[Placed | NotPlaced]:
    """Set arguments of the loaders."""

    def act(call: cst.Call) -> cst.Call:
        return set_arguments(call, values, positions=POSITIONS, dropped=dropped)

    def place(spot: FoundSite) -> tuple[Change, ...]:
        check_alone(spot.site)
        act(spot.call)
        return (CallChange(source=spot.source, call=spot.call, act=act),)

    return at_each(ground, sites, place, note=note)


def fetch_whole_batches(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """A data set around the one of the loader that gives whole batches.

    What is no TensorDataset (torchvision's MNIST, windows of arrays) has all its samples made once.
    """
    take(settings)

    def place(spot: FoundSite) -> tuple[Change, ...]:
        if "tensor_dataset" in spot.site.traits:
            return _give_batches(spot, "WholeBatches", _WHOLE, {})
        return _give_batches(spot, "PreloadedSamples", _PRELOADED, {})

    sites = [
        site
        for site in ground.sites("loader")
        if {"tensor_dataset", "in_memory"} & set(site.traits) and "own_collate" not in site.traits
    ]
    is_made_once = any("tensor_dataset" not in site.traits for site in sites)
    return at_each(ground, needed_sites(sites), place, note=MADE_ONCE if is_made_once else None)


def preload_samples(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """A data set around the one of the loader that has made all samples; it needs no workers."""
    take(settings, "limit_bytes")

    def place(spot: FoundSite) -> tuple[Change, ...]:
        if "own_collate" in spot.site.traits:
            raise CannotPlaceError("The edit joins samples by torch's own collate function alone.")
        no_workers = {"num_workers": "0"}
        return _give_batches(spot, "PreloadedSamples", _PRELOADED, no_workers, dropped=_OF_WORKERS)

    unfit = {"tensor_dataset", "in_memory", "iterable"}  # as in the lever
    fit = [site for site in ground.sites("loader") if not unfit & set(site.traits)]
    sites = [site for site in fit if "own_collate" not in site.traits] or fit
    return at_each(ground, needed_sites(sites), place, note=UNLIMITED)


def _give_batches(
    spot: FoundSite,
    name: str,
    template: str,
    values: Mapping[str, str],
    *,
    dropped: Sequence[str] = (),
) -> tuple[Change, ...]:
    """Put a class whose batches are collated already around the loader's data set.

    Args:
        spot: the loader.
        name: of the class, if the file has none of that name.
        template: its text.
        values: further arguments of the loader.
        dropped: arguments that go.
    """
    check_alone(spot.site)
    source = spot.source
    torch, needed = need_torch(source)
    name, as_it_is = source.fresh_name(name), source.fresh_name("as_it_is")
    return (
        *needed,
        Beginning(source=source, text=template.format(name=name, torch=torch), num_blank=2),
        Beginning(source=source, text=_AS_IT_IS.format(name=as_it_is), num_blank=2),
        wrap_dataset(spot, name, {"collate_fn": as_it_is, **values}, dropped=dropped),
    )


def cache_samples(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """A data set around the one of the loader that keeps its samples."""
    take(settings, "limit_bytes", "is_on_disk", "has_draws")

    def place(spot: FoundSite) -> tuple[Change, ...]:
        check_alone(spot.site)
        if settings.get("is_on_disk") or settings.get("has_draws"):
            raise CannotPlaceError(IN_THE_DATA_SET)
        if "own_collate" in spot.site.traits:
            raise CannotPlaceError("The loader's own collate function might change kept samples.")
        source = spot.source
        torch, needed = need_torch(source)
        cached = source.fresh_name("CachedSamples")
        text = _CACHED.format(name=cached, torch=torch)
        beginning = Beginning(source=source, text=text, num_blank=2)
        return (*needed, beginning, wrap_dataset(spot, cached, {}))

    sites = [
        site
        for site in ground.sites("loader")
        if not ({"tensor_dataset", "iterable"} & set(site.traits) or words_of(site, "workers"))
        and not set(words_of(site, "dataset")) & set(IN_MEMORY)
    ]
    return at_each(ground, needed_sites(sites), place, note=UNLIMITED)


def trim_batches(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """A collate function around the one of the loader that cuts its batches."""
    take(settings, "multiple_of")

    def place(spot: FoundSite) -> tuple[Change, ...]:
        source = spot.source
        check_alone(spot.site)
        torch, needed = need_torch(source)
        name = source.fresh_name("TrimmedBatches")
        text = _TRIMMED.format(name=name, multiple=settings["multiple_of"])
        given = find_argument(spot.call, "collate_fn", position=POSITIONS.index("collate_fn"))
        if given is None and "own_collate" in spot.site.traits:
            raise CannotPlaceError(f"{spot.where} does not say how its batches are collated.")
        inner = f"{torch}.utils.data.default_collate"
        if given is not None and source.code(given.value) != "None":
            inner = source.code(given.value)

        def act(call: cst.Call) -> cst.Call:
            return set_arguments(call, {"collate_fn": f"{name}({inner})"}, positions=POSITIONS)

        act(spot.call)
        change = CallChange(source=source, call=spot.call, act=act)
        return (*needed, Beginning(source=source, text=text, num_blank=2), change)

    sites = [site for site in ground.sites("loader") if "tensor_dataset" not in site.traits]
    return at_each(ground, needed_sites(sites), place, note=ONLY_MAPPINGS)


def check_alone(site: EditSite) -> None:
    """Refuse a call that also makes loaders which the lever left alone.

    Raises:
        CannotPlaceError: it does.
    """
    if "shared" in site.traits:
        raise CannotPlaceError("The same call makes a loader too for which nothing was proven.")


def needed_sites(sites: list[EditSite]) -> list[EditSite]:
    """The sites, of which there must be one.

    Raises:
        CannotPlaceError: there is none.
    """
    if not sites:
        raise CannotPlaceError("No call was seen that makes a loader which this lever changes.")
    return sites


def wrap_dataset(
    spot: FoundSite, name: str, values: dict[str, str], *, dropped: Sequence[str] = ()
) -> CallChange:
    """Put `name(...)` around the loader's data set, set more arguments, and leave some out.

    Raises:
        CannotPlaceError: the data set is not written in the call.
    """
    _find_dataset(spot.source, spot.call)

    def act(call: cst.Call) -> cst.Call:
        given = find_argument(call, "dataset", position=0)
        arguments = [
            arg.with_changes(value=cst.Call(cst.Name(name), [cst.Arg(arg.value)]))
            if arg is given
            else arg
            for arg in call.args
        ]
        changed = call.with_changes(args=arguments)
        return set_arguments(changed, values, positions=POSITIONS, dropped=dropped)

    act(spot.call)
    return CallChange(source=spot.source, call=spot.call, act=act)


def _find_dataset(source: SourceFile, call: cst.Call) -> cst.Arg:
    found = find_argument(call, "dataset", position=0)
    if found is None:
        raise CannotPlaceError(f"The call {source.code(call)[:60]} does not name its data set.")
    return found
