"""`open_source`: what data at a place is, told by its contents, and the reader that fits.

A file is known by its first bytes, a folder by the index or the shards in it. What cannot be told
ends in one sentence that says what was looked at, and how to name it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from steptime.data.source import SampleSource
from steptime.data.sources.checked_source import FAILURES, CheckedSource, FormatReader, sentence
from steptime.data.sources.fingerprints import fingerprint_of
from steptime.data.sources.recognition import recognize
from steptime.data.stored_bytes import LocalFiles, StoredFiles, StoredPlace
from steptime.data.stores.cloud_files import files_of_url, is_url
from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError

FORMATS: Mapping[str, str] = {
    "folder": "folder_files.open_folder",
    "prepared": "prepared_folder.open_prepared_folder",
    "npy": "npy_files.open_npy",
    "npz": "npy_files.open_npz",
    "arrow": "arrow_files.open_arrow",
    "parquet": "parquet_files.open_parquet",
    "tfrecord": "tfrecord_files.open_tfrecord",
    "tar": "tar_files.open_tar",
    "huggingface": "huggingface_files.open_huggingface",
    "csv": "csv_files.open_csv",
    "csv_with_header": "csv_files.open_csv_with_header",
    "csv_without_header": "csv_files.open_csv_without_header",
    "jsonl": "jsonl_files.open_jsonl",
    "hdf5": "hdf5_files.open_hdf5",
}
"""Names of formats, and the function of this package that opens them."""


def open_source(
    where: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the field's word, and no code here formats
    files: StoredFiles | None = None,
    **options: Any,
) -> SampleSource:
    """Open data, whatever its format; it is read only.

    Args:
        where: a file or folder, or the URL of one in a store (`s3://…`).
        format: the format's name (one of `FORMATS`); None tells it by the contents.
        files: what opens files, for a store with keys or options of its own
            (`steptime.data.CloudFiles`); None for files of this machine, and for URLs.
        options: of the format, e.g. `split="train"`, `columns=("image", "label")`.

    Raises:
        NotFoundError: there is nothing.
        DataError: it cannot be told what it is, or it is damaged.
        UsageError: there is no such format, or it has no such option.
        MissingExtraError: a package that the format needs is not installed.
    """
    place = _place(os.fsdecode(where), files)
    is_folder = place.files.is_folder(place.where)
    if is_folder is None:
        raise NotFoundError(f"there is no file or folder {place.where}")
    if format is None:
        try:
            format = recognize(place, is_folder)  # noqa: A001
        except OSError as error:
            raise DataError(f"{place.where} cannot be read: {sentence(error)}") from error
    if format not in FORMATS:
        raise UsageError(f"there is no format {format}: there are {', '.join(FORMATS)}")
    return Opening(place, format, tuple(options.items()))(None)


def _place(where: str, files: StoredFiles | None) -> StoredPlace:
    if files is None and is_url(where):
        where, files = files_of_url(where)
    return StoredPlace(where, LocalFiles() if files is None else files)


@dataclass(frozen=True)
class Opening:
    """How a source was opened, so that another process can do it again."""

    place: StoredPlace
    format: str
    options: tuple[tuple[str, Any], ...]

    def __call__(self, index: object) -> CheckedSource:
        """Open the source, with the index of its reader where that is known."""
        in_flight = getattr(self.place.files, "reads_in_flight", None)
        return CheckedSource(self._reader(index), self, in_flight)

    def fingerprint(self) -> str:
        """Return a text that changes with the files, and with what is read of them.

        Raises:
            DataError: they cannot be asked.
        """
        try:
            return f"{fingerprint_of(self.place)} {self.format} {self.options!r}"
        except OSError as error:
            raise DataError(f"{self.place.where} cannot be read: {sentence(error)}") from error

    def _reader(self, index: object) -> FormatReader:
        module, _, function = FORMATS[self.format].partition(".")
        try:
            opener = getattr(import_module(f"steptime.data.sources.formats.{module}"), function)
            self._check_options(opener)
            reader: FormatReader = opener(self.place, index, **dict(self.options))
        except ImportError as error:
            raise MissingExtraError(
                f"the format {self.format} needs a package that is not here: {sentence(error)}",
                needs=PACKAGES.get(self.format, "steptime[data]"),
            ) from error
        except FAILURES as error:
            what = f"{self.place.where} cannot be opened as {self.format}"
            raise DataError(f"{what}: {sentence(error)}") from error
        return reader

    def _check_options(self, opener: Callable[..., Any]) -> None:
        parameters = inspect.signature(opener).parameters.values()
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        for option, _ in self.options:
            if option not in known:
                have = f"it has {', '.join(known)}" if known else "it has none"
                what = f"{self.place.where} is read as {self.format}"
                raise UsageError(f"{what}, which has no option {option}: {have}")


PACKAGES = {"hdf5": "h5py"}
