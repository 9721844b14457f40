"""The ledger of releases: what each has cost, since the first reference, as a file to keep in git.

In: the path. Out: its entries. A line is one release as JSON, with the SHA-256 of the line before,
so that a line that was changed is seen. Lines are appended, and never written again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from steptime.errors import DataError, StoreError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.release.release_question import LedgerEntry


def read_ledger(path: Path) -> tuple[LedgerEntry, ...]:
    """Return the entries, the oldest first; none where there is no file yet.

    Raises:
        DataError: it cannot be read, or a line does not follow from the one before it.
    """
    import msgspec

    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DataError(f"the ledger `{path}` cannot be read: {error}") from error
    entries, previous = list[LedgerEntry](), ""
    for i, line in enumerate(lines):
        try:
            entry = msgspec.json.decode(line, type=LedgerEntry)
        except msgspec.DecodeError as error:
            raise DataError(f"line {i + 1} of the ledger `{path}` is damaged: {error}") from error
        if entry.previous != previous:
            raise DataError(
                f"line {i + 1} of the ledger `{path}` does not follow from the line before it: "
                "one of them was changed, taken out or put in.",
                hint="Take the file back from your repository; only `--record` writes to it.",
            )
        previous = hashlib.sha256(line).hexdigest()
        entries.append(entry)
    return tuple(entries)


def append_release(
    path: Path,
    entries: Sequence[LedgerEntry],
    *,
    release: str,
    reference: str,
    gains: Mapping[str, float],
) -> None:
    """Append a release to the ledger, whole or not at all.

    Args:
        path: the file.
        entries: what it held when this release was judged.
        release, reference: the names.
        gains: by metric, its gain.

    Raises:
        UsageError: the release is in it already.
        DataError: it has changed since it was read.
        StoreError: it cannot be written.
    """
    import fcntl

    import msgspec

    if any(one.release == release for one in entries):
        raise UsageError(
            f"`{release}` is in the ledger `{path}` already.", hint="Give this release a new name."
        )
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if read_ledger(path) != tuple(entries):
                raise DataError(f"the ledger `{path}` has changed since it was read; judge again.")
            lines = read_regular(path).splitlines()
            previous = hashlib.sha256(lines[-1]).hexdigest() if lines else ""
            entry = LedgerEntry(
                release=release, reference=reference, gains=dict(gains), previous=previous
            )
            os.write(descriptor, msgspec.json.encode(entry, order="deterministic") + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"the ledger `{path}` cannot be written: {error}") from error
