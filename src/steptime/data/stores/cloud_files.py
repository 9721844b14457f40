"""Objects of a store as files: sizes, names and ranges of bytes, through fsspec.

In: a URL, and options for the store's own package (s3fs, gcsfs, adlfs). Out: bytes. It is the same
seam as the files of a disk. What a store answers in error is tried again; secrets stay
out of every message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from steptime.data.stores.hidden_secrets import has_user, hide_secrets
from steptime.data.stores.retries import Retries, ShortAnswerError, store_errors
from steptime.errors import DataError, MissingExtraError, UsageError

T = TypeVar("T")

READS_IN_FLIGHT = 16
"""Reads at once that a source over a store is made for; see docs/libraries/data.md."""

# Each request is tried by us and nobody else: libraries that try again themselves multiply it.
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": 10,
            "read_timeout": 30,
            "max_pool_connections": 2 * READS_IN_FLIGHT,
        }
    }
}
_OPTIONS["s3a"] = _OPTIONS["s3"]
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs",
             "abfs": "adlfs", "abfss": "adlfs", "adl": "adlfs"}  # fmt: skip


class StoreReadError(DataError, OSError):
    """An object cannot be read, as a file cannot: readers of formats know OSError alone."""


class NoObjectError(StoreReadError, FileNotFoundError):
    """There is no such object."""


def is_url(where: str) -> bool:
    """Whether a place is in a store."""
    return "://" in where


def files_of_url(where: str) -> tuple[str, CloudFiles]:
    """Return a URL as it may be shown, and what opens it; keys come from the environment.

    Raises:
        UsageError: it has a user or a password in it, which would be shown with each error.
    """
    place, mark, query = where.partition("?")
    if has_user(place):
        raise UsageError(
            "a URL with a user or a password in it is not opened",
            hint="Give them to CloudFiles as options of the store's package.",
        )
    return place, CloudFiles(query=mark + query)


@dataclass
class CloudFiles:
    """The objects of stores; it can be pickled, and used after a fork and by many threads."""

    reads_in_flight: ClassVar[int] = READS_IN_FLIGHT

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For the store's package: keys, `endpoint_url`, …"""
    retries: Retries = field(default_factory=Retries)
    query: str = field(default="", repr=False)
    """What is put behind each URL (`?…`): a signature, which no message shows."""
    _made: dict[tuple[int, str], Any] = field(default_factory=dict, init=False, repr=False)

    def is_folder(self, where: str) -> bool | None:
        """Whether a place is a prefix; None where there is nothing.

        Raises:
            DataError: the store does not answer, or refuses.
        """
        files, path = self._files(where), self._path(where)

        def ask() -> str | None:
            try:
                return str(files.info(path)["type"])
            except FileNotFoundError:
                return None

        kind = self._call(where, ask)
        return None if kind is None else kind == "directory"

    def walk(self, where: str) -> Iterator[tuple[bytes, int | None]]:
        """Yield the objects below a prefix: name relative to it, and size [bytes].

        It holds the names of one prefix at a time. What begins with a dot is left out.

        Raises:
            DataError: the store does not answer, or refuses.
        """
        root = self._path(where).rstrip("/")
        pending = [root]
        while pending:
            folder = pending.pop()
            for entry in self._list(where, folder):
                name = str(entry["name"]).rstrip("/")
                inner = name[len(root) :].lstrip("/")
                if name == folder or inner.rpartition("/")[2].startswith("."):
                    continue
                if entry["type"] == "directory":
                    pending.append(name)
                else:
                    yield inner.encode("utf-8", "surrogateescape"), entry.get("size")

    def open_bytes(self, where: str) -> CloudBytes:
        """Return an object, to be read by ranges.

        Raises:
            DataError: it is not there, is a prefix, or the store does not answer.
        """
        files, path = self._files(where), self._path(where)
        found = self._call(where, lambda: files.info(path))
        if found["type"] == "directory" or found.get("size") is None:
            raise StoreReadError(f"{self.name_of(where)} is a prefix, and no object")
        return CloudBytes(self, where, int(found["size"]))

    def path_of(self, where: str) -> None:
        """Return None: no library can open an object by a path."""

    def name_of(self, where: str) -> str:
        """Return a URL for a person: without keys, users and signatures."""
        return hide_secrets(where, self.options)

    def read_range(self, where: str, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to before `stop` of an object.

        Raises:
            DataError: they cannot be read, after several attempts.
        """
        files, path = self._files(where), self._path(where)

        def read() -> bytes:
            data: bytes = files.cat_file(path, start=start, end=stop)
            if len(data) != stop - start:
                raise ShortAnswerError(f"{len(data)} of {stop - start} bytes came")
            return data

        return self._call(where, read)

    def _list(self, where: str, folder: str) -> list[dict[str, Any]]:
        files = self._files(where)
        listed: list[dict[str, Any]] = self._call(where, lambda: files.ls(folder, detail=True))
        return listed

    def _call(self, where: str, work: Callable[[], T]) -> T:
        try:
            return self.retries.call(work)
        except store_errors() as error:
            what = hide_secrets(f"{type(error).__name__}: {error}", self.options)
            kind = NoObjectError if isinstance(error, FileNotFoundError) else StoreReadError
        # What the library raised is not chained, because its text may hold keys.
        raise kind(f"{self.name_of(where)} cannot be read: {what}") from None

    def _path(self, where: str) -> str:
        return str(self._files(where)._strip_protocol(where + self.query))

    def _files(self, where: str) -> Any:
        """Return the store's file system, made once in each process."""
        protocol = where.partition("://")[0]
        key = (os.getpid(), protocol)
        if key not in self._made:
            self._made[key] = self._make(protocol)
        return self._made[key]

    def _make(self, protocol: str) -> Any:
        try:
            import fsspec
        except ImportError as error:
            raise MissingExtraError(
                f"object stores are read by fsspec, which cannot be imported: {error}",
                needs="steptime[cloud]",
            ) from error
        options = {**_OPTIONS.get(protocol, {}), **self.options}
        try:
            kind = fsspec.get_filesystem_class(protocol)
            made = kind(**options, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            package = _PACKAGES.get(protocol)
            raise MissingExtraError(
                f"{protocol}:// needs a package that is not there: {error}",
                needs=package,
            ) from error
        except ValueError as error:
            what = hide_secrets(str(error), self.options)
            raise DataError(f"{protocol}:// cannot be opened: {what}") from None
        if isinstance(getattr(made, "retries", None), int):
            made.retries = 1
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Leave out connections."""
        return {**self.__dict__, "_made": {}}


@dataclass
class CloudBytes:
    """One object; many threads may read it at once."""

    files: CloudFiles
    where: str = field(repr=False)
    size: int
    """As it was when it was opened [bytes]."""

    @property
    def name(self) -> str:
        """Where it lies, for a person."""
        return self.files.name_of(self.where)

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer only where the object ends.

        Raises:
            DataError: they cannot be read, after several attempts.
        """
        stop = min(offset + count, self.size)
        return self.files.read_range(self.where, offset, stop) if offset < stop else b""

    def close(self) -> None:
        """Nothing is held."""
