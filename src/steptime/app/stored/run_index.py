"""The SQLite index of a store: one row per run, for listing and comparing.

The files in the run folders are the truth; this is a cache of them. A damaged index is thrown away,
and an index that cannot be opened is not used; neither is an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from steptime.core.codec import decode, encode
from steptime.errors import DamagedRunError
from steptime.measure.values.run_summary import RunSummary

_VERSION = 5  # of the table; an index of another version is rebuilt
_BUSY_S = 2.0  # another run writes one row; if it takes longer, the folders are read instead
_TABLE = "CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, summary TEXT) WITHOUT ROWID"

T = TypeVar("T")


def read_rows(path: Path) -> dict[str, RunSummary]:
    """Return all rows by run id; empty if there is no usable index."""

    def read(connection: sqlite3.Connection) -> dict[str, RunSummary]:
        rows = connection.execute("SELECT * FROM runs").fetchall()
        return {run_id: decode(RunSummary, text.encode(), where=run_id) for run_id, text in rows}

    return _use(path, read) or {}


def write_rows(path: Path, rows: Iterable[RunSummary]) -> bool:
    """Insert or replace the rows; return whether it could be done."""

    def write(connection: sqlite3.Connection) -> bool:
        sql = "INSERT OR REPLACE INTO runs VALUES (?, ?)"
        connection.executemany(sql, [(row.run_id, encode(row)) for row in rows])
        return True

    return _use(path, write) or False


def delete_rows(path: Path, run_ids: Iterable[str]) -> None:
    """Forget runs whose folders are gone."""

    def delete(connection: sqlite3.Connection) -> None:
        connection.executemany("DELETE FROM runs WHERE run_id = ?", [(i,) for i in run_ids])

    _use(path, delete)


def discard(path: Path) -> None:
    """Throw the index away."""
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(OSError):
            path.with_name(name).unlink()


def _use(path: Path, action: Callable[[sqlite3.Connection], T]) -> T | None:
    """Return the action's result; None if the index was damaged (now deleted) or cannot be used."""
    try:
        # The rollback journal is kept, because write-ahead logging does not work on network disks.
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as connection, connection:
            _prepare(connection)
            return action(connection)
    except sqlite3.OperationalError:
        return None  # busy, read-only or a full disk; the file itself is sound
    except (sqlite3.DatabaseError, AttributeError, ValueError, DamagedRunError):
        discard(path)
        return None


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _VERSION:
        connection.execute("DROP TABLE IF EXISTS runs")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute(_TABLE)
