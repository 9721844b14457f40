"""Makes batches of clicks one index at a time, as generators of data for tests do."""

import numpy as np
import torch
from numpy import random as ra


def make_batch(size, tables_of):
    tables = []
    for entries in tables_of:  # ailment
        offsets, indices = [], []
        for _ in range(size):
            num = np.int64(np.round(max([1.0], ra.random(1) * 8)))[0]
            group = np.unique(np.round(ra.random(num) * (entries - 1)).astype(np.int64))
            offsets += [len(indices)]
            indices += group.tolist()
        tables.append((torch.tensor(indices), torch.tensor(offsets)))
    return tables, torch.tensor(ra.rand(size, 1).astype(np.float32)).round()


def read_batch(path, index):
    with open(path) as file:
        return parse(file.read().splitlines()[index])


def parse(line):
    raise NotImplementedError(line)
