"""The ledger of releases: what each has cost, since the first reference, as a file to keep in git.

A line is one release as JSON, with the SHA-256 of the release before, so that an entry that was
changed is seen. Lines are appended, and never written again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from steptime.errors import DataError, StoreError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.release.release_question import LedgerEntry, ReleaseQuestion
from steptime.verify.values.release_verdict import ReleaseVerdict

_BACK = "Take the file back from your repository; only `--record` writes to it."


def read_ledger(path: Path) -> tuple[LedgerEntry, ...]:
    """Return the entries, the oldest first; none where there is no file yet.

    Raises:
        DataError: it cannot be read, or an entry does not follow from the one before it.
    """
    try:
        lines = read_regular(path).splitlines()
        entries = [msgspec.json.decode(line, type=LedgerEntry) for line in lines]
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"the ledger `{path}` cannot be read: {error}.", hint=_BACK) from error
    for i, entry in enumerate(entries):
        if entry.previous != _hash_of_last(entries[:i]):
            told = f"line {i + 1} of the ledger `{path}` does not follow from the line before it"
            raise DataError(f"{told}: one of them was changed, or is gone.", hint=_BACK)
    return tuple(entries)


def _line(entry: LedgerEntry) -> bytes:
    return msgspec.json.encode(entry, order="deterministic") + b"\n"


def _hash_of_last(entries: Sequence[LedgerEntry]) -> str:
    return hashlib.sha256(_line(entries[-1])).hexdigest() if entries else ""


def record_release(path: Path, asked: ReleaseQuestion, found: ReleaseVerdict) -> None:
    """Append a release that ships to the ledger that its file names; `path` is that of the file.

    Raises:
        UsageError: the file names no ledger, or the release is in it already.
        DataError: the ledger has changed since the release was judged.
        StoreError: it cannot be written.
    """
    if (erosion := asked.file.erosion) is None:
        hint = 'Name one:  [erosion] ledger = "erosion.jsonl", reference = "NAME"'
        raise UsageError(f"--record: `{path}` names no ledger.", hint=hint)
    ledger, eroded = path.parent / erosion.ledger, {one.metric for one in found.erosion}
    gains = {one.metric: one.gain.estimate for one in found.metrics if one.metric in eroded}
    try:
        with ledger.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            entries = read_ledger(ledger)
            if found.release in [one.release for one in entries]:
                told = f"`{found.release}` is in the ledger `{ledger}` already."
                raise UsageError(told, hint="Give this release a new name.")
            if entries != asked.ledger:
                raise DataError(
                    f"the ledger `{ledger}` has changed since it was read: judge again."
                )
            entry = LedgerEntry(
                release=found.release,
                reference=erosion.reference,
                gains=gains,
                previous=_hash_of_last(entries),
            )
            is_cut = entries and not read_regular(ledger).endswith(b"\n")  # by an editor
            file.write(b"\n" * bool(is_cut) + _line(entry))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"the ledger `{ledger}` cannot be written: {error}") from error
