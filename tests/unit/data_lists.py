"""A `SampleSource` over lists in memory, for tests of what reads sources."""

import numpy as np

from steptime.data.source import Column
from steptime.errors import DataError


class ListSource:
    """Samples in lists, by column; `damaged` are the numbers of samples that cannot be read."""

    name = "lists"

    def __init__(self, columns, values, *, damaged=()):
        self.columns = tuple(columns)
        self.values = values
        self.damaged = set(damaged)
        self.num_reads = 0

    @property
    def num_bytes(self):
        return None

    def __len__(self):
        return len(next(iter(self.values.values())))

    def read(self, indices):
        self.num_reads += len(indices)
        for index in indices:
            if index in self.damaged:
                raise DataError(f"{self.place_of(index)} cannot be read")
        found = {}
        for column in self.columns:
            rows = [self.values[column.name][index] for index in indices]
            is_fixed = column.shape is not None
            found[column.name] = np.array(rows, column.dtype) if is_fixed else rows
        return found

    def place_of(self, index):
        return f"list, row {index}"

    def close(self):
        pass


def make_mixed(num_samples=50):
    """A source with a column of each kind."""
    draw = np.random.default_rng(0)
    columns = (
        Column("pixels", "array", "uint8", (4, 5)),
        Column("label", "number", "int64", (), ("cat", "dog")),
        Column("weight", "number", "float32", ()),
        Column("name", "text"),
        Column("data", "bytes"),
        Column("wave", "array", "float32", None),
    )
    values = {
        "pixels": [draw.integers(0, 256, (4, 5), dtype=np.uint8) for _ in range(num_samples)],
        "label": [index % 2 for index in range(num_samples)],
        "weight": [index / 4 for index in range(num_samples)],
        "name": [f"é{index}\udcff" for index in range(num_samples)],
        "data": [bytes([index % 256]) * (index % 7) for index in range(num_samples)],
        "wave": [np.arange(index % 5, dtype=np.float32) for index in range(num_samples)],
    }
    return ListSource(columns, values)
