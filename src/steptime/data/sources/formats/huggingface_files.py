"""What `datasets.Dataset.save_to_disk` wrote: Arrow files, named by `state.json`.

Folders of Parquet as on the hub are `parquet`. Source: huggingface/datasets, `save_to_disk` of
Dataset and DatasetDict.
"""

from __future__ import annotations

import msgspec

from steptime.data.sources.decoded_groups import CACHE_BYTES
from steptime.data.sources.formats.arrow_files import ArrowBatches, ArrowReader, find_batches
from steptime.data.sources.json_index import read_index, shard_in
from steptime.data.stored_bytes import StoredPlace
from steptime.errors import DataError

STATE, SPLITS = "state.json", "dataset_dict.json"


class DataFile(msgspec.Struct):
    """One Arrow file of a saved dataset."""

    filename: str


class SavedState(msgspec.Struct):
    """`state.json`."""

    data_files: list[DataFile] = msgspec.field(name="_data_files")


class SavedSplits(msgspec.Struct):
    """`dataset_dict.json`."""

    splits: list[str]


def open_huggingface(
    place: StoredPlace,
    index: ArrowBatches | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> ArrowReader:
    """Open a saved dataset, or one split of a saved dictionary of datasets.

    Args:
        place: the folder.
        index: the batches, where they are known.
        split: the split to take of several.
        columns: the columns to read; None for all.
        cache_bytes: of batches that had to be decoded and are kept [bytes].
    """
    if index is None:
        folder = _of_split(place, split)
        files = read_index(folder.inside(STATE), SavedState).data_files
        if not files:
            raise DataError(f"{folder.inside(STATE).where} names no files")
        index = find_batches([shard_in(folder, file.filename, STATE) for file in files])
    wanted = None if columns is None else tuple(columns)
    return ArrowReader("Hugging Face dataset", index, wanted, cache_bytes)


def _of_split(place: StoredPlace, split: str | None) -> StoredPlace:
    if place.files.is_folder(place.inside(SPLITS).where) is None:
        if split is not None:
            raise DataError(f"{place.where} has no splits: it is one dataset")
        return place
    splits = read_index(place.inside(SPLITS), SavedSplits).splits
    if split is None and len(splits) != 1:
        hint = "Name one: split='train', for instance."
        raise DataError(f"{place.where} has several splits: {', '.join(splits)}", hint=hint)
    name = splits[0] if split is None else split
    if name not in splits:
        raise DataError(f"{place.where} has no split {name}: it has {', '.join(splits)}")
    return shard_in(place, name, SPLITS)
