"""SQLite: the rows of one table, by the order of their row ids; the file is opened to be read."""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.file_object import local_path
from steptime.data.sources.record_shards import stack
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

MAX_VARIABLES = 500
"""In one question; SQLite's oldest limit is 999."""
TOLD_ROWS = 100
"""Rows from which the kinds of the columns are told: a table's declared types bind nobody."""


class SQLiteIndex(NamedTuple):
    """The rows of a table."""

    table: str
    columns: tuple[Column, ...]
    rows: NDArray[np.int64]
    """(num_rows,) row ids, rising."""


class SQLiteReader:
    """See the module."""

    name = "SQLite"

    def __init__(self, place: StoredPlace, index: SQLiteIndex) -> None:
        self._place = place
        self._path = local_path(place, "SQLite")
        self._index = index
        self._connections = Connections(self._path)
        self.columns = index.columns
        self.num_bytes = os.stat(self._path).st_size

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._index.rows)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read rows, hundreds by one question."""
        names = ", ".join(quoted(column.name) for column in self.columns)
        found: dict[int, tuple[Any, ...]] = {}
        wanted = np.unique(self._index.rows[indices])
        try:
            connection = self._connections.get()
            for begin in range(0, len(wanted), MAX_VARIABLES):
                part = wanted[begin : begin + MAX_VARIABLES].tolist()
                marks = ",".join("?" * len(part))
                table = quoted(self._index.table)
                question = f"SELECT rowid, {names} FROM {table} WHERE rowid IN ({marks})"
                found.update((row[0], row[1:]) for row in connection.execute(question, part))
        except sqlite3.Error as error:
            raise DamagedBytesError(str(error)) from error
        if len(found) != len(wanted):
            raise DamagedBytesError("the row is gone")
        rows = [found[row] for row in self._index.rows[indices].tolist()]
        columns = zip(self.columns, zip(*rows, strict=True), strict=True)
        return {column.name: _values(list(values), column) for column, values in columns}

    def place_of(self, index: int) -> str:
        """Return file, table and row id."""
        where = f"{self._place.where}, table {self._index.table}"
        return f"{where}, row {index} (rowid {self._index.rows[index]})"

    def index(self) -> SQLiteIndex:
        """Return the row ids."""
        return self._index

    def close(self) -> None:
        """Close the file."""
        self._connections.close()


class Connections:
    """A connection for each thread of each process, since SQLite's are for one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []

    def get(self) -> sqlite3.Connection:
        """Return this thread's connection."""
        if getattr(self._own, "process", None) != os.getpid():
            self._own.connection = connect(self._path)
            self._own.process = os.getpid()
            self._all.append(self._own.connection)
        connection: sqlite3.Connection = self._own.connection
        return connection

    def close(self) -> None:
        """Close all of them."""
        while self._all:
            self._all.pop().close()
        self._own = threading.local()


def connect(path: str) -> sqlite3.Connection:
    """Open a database to be read, without the functions that its schema may call.

    Raises:
        DataError: another program has not finished writing to it.
    """
    for ending in ("-wal", "-journal"):
        if os.path.exists(path + ending) and os.path.getsize(path + ending):
            hint = "End the program that writes, or run `PRAGMA wal_checkpoint(TRUNCATE)` in it."
            raise DataError(f"{path} has not been finished: there is {path}{ending}", hint=hint)
    address = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    for setting in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def open_sqlite(
    place: StoredPlace,
    index: SQLiteIndex | None,
    *,
    table: str | None = None,
    columns: tuple[str, ...] | None = None,
) -> SQLiteReader:
    """Open a table of a local file.

    Args:
        place: the file.
        index: the row ids, where they are known.
        table: the table's name; None where there is one alone.
        columns: the columns to read; None for all.
    """
    if index is None:
        try:
            connection = connect(local_path(place, "SQLite"))
            try:
                index = _find_rows(connection, place.where, table, columns)
            finally:
                connection.close()
        except (sqlite3.Error, OverflowError) as error:
            raise DataError(f"{place.where} cannot be read as SQLite: {error}") from error
    return SQLiteReader(place, index)


def _find_rows(
    connection: sqlite3.Connection,
    where: str,
    table: str | None,
    columns: tuple[str, ...] | None,
) -> SQLiteIndex:
    question = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = sorted(str(row[0]) for row in connection.execute(question))
    if table is None and len(tables) != 1:
        hint = "Name one: table='samples', for instance."
        raise DataError(f"{where} has the tables {', '.join(tables) or 'none'}", hint=hint)
    chosen = tables[0] if table is None else table
    if chosen not in tables:
        raise DataError(f"{where} has no table {chosen}: it has {', '.join(tables)}")
    have = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({quoted(chosen)})")]
    missing = [name for name in columns or () if name not in have]
    if missing:
        what = f"no column {', '.join(missing)}: it has {', '.join(have)}"
        raise DataError(f"table {chosen} of {where} has {what}")
    names = have if columns is None else list(columns)
    ids = connection.execute(f"SELECT rowid FROM {quoted(chosen)} ORDER BY rowid")
    rows = np.fromiter((row[0] for row in ids), np.int64)
    if len(rows) and (np.diff(rows) <= 0).any():
        raise DataError(f"{where} is damaged: the row ids of {chosen} do not rise")
    listed = ", ".join(quoted(name) for name in names)
    first = connection.execute(f"SELECT {listed} FROM {quoted(chosen)} LIMIT {TOLD_ROWS}")
    values = list(zip(*first.fetchall(), strict=True)) or [()] * len(names)
    told = (_column(name, list(column)) for name, column in zip(names, values, strict=True))
    return SQLiteIndex(chosen, tuple(told), rows)


def _column(name: str, values: list[Any]) -> Column:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return Column(name, "number", "int64", ())
    if kinds and kinds <= {int, float}:
        return Column(name, "number", "float64", ())
    return Column(name, "bytes") if kinds == {bytes} else Column(name, "text")


def _values(values: list[Any], column: Column) -> Values:
    expected = {"text": str, "bytes": bytes}.get(column.kind, (int, float))
    for value in values:
        if value is not None and not isinstance(value, expected):
            what = f"a value of the type {type(value).__name__}, the first have another"
            raise DamagedBytesError(f"column {column.name} has {what}")
    return stack(values, column)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
