"""The columns of one table of a release, with errors that name the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.verify.prediction_table import codes_of, numbers_of, read_table
from steptime.errors import DataError, MissingExtraError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from steptime.verify.model.two_arms import Codes, Floats

_NONE = "(none)"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table that was read; `path` is its file."""

    path: Path
    table: pa.Table

    def __contains__(self, name: str) -> bool:
        """Return whether there is such a column."""
        return name in self.table.column_names

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers (num_rows,); what is missing is not a number."""
        self.need(name)
        try:
            return numbers_of(self.table, name)
        except DataError as error:
            raise DataError(f"`{self.path}`: {error}") from error

    def codes(self, name: str) -> tuple[Codes, Sequence[str]]:
        """Return the code of each row's text (num_rows,), and the texts; "" where it is missing."""
        self.need(name)
        found = codes_of([self.table.column(name)])
        assert found is not None
        return found[0][0], ["" if text == _NONE else text for text in found[1]]

    def need(self, name: str) -> None:
        """Check that a column is there.

        Raises:
            UsageError: it is missing.
        """
        if name not in self:
            known = ", ".join(f"`{one}`" for one in self.table.column_names)
            raise UsageError(f"`{self.path}` has no column `{name}`; it has {known}.")


def read_columns(path: Path) -> TableColumns:
    """Return the table of a file.

    Raises:
        NotFoundError: the file is not there.
        DataError: it cannot be read as a table, or has no rows.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        table = read_table(path, None)
    except ImportError as error:
        what = "Reading tables needs pyarrow, which is not installed."
        raise MissingExtraError(what, needs="steptime[verify-model]") from error
    if not table.num_rows:
        raise DataError(f"EmptySlice: `{path}` has no rows.")
    return TableColumns(path, table)
