"""Batches of data sets whose samples are views: as torch's collate makes them, or not at all."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import DataLoader, Dataset, Subset  # noqa: E402

from steptime.levers.input import whole_batch_fetch  # noqa: E402
from steptime.levers.input.datasets import content_of  # noqa: E402
from steptime.levers.input.views import WholeViews  # noqa: E402
from steptime.levers.tools.generators import random_states  # noqa: E402

LENGTH, WIDTH, WINDOW, AHEAD = 120, 3, 8, 4


class Windows(Dataset):
    """As the data sets of time series are written: windows of a table and of its time stamps."""

    def __init__(self) -> None:
        table = np.random.default_rng(0).normal(size=(LENGTH + 30, WIDTH))
        self.data = table[10 : LENGTH + 10]
        self.stamps = np.arange(4.0 * LENGTH).reshape(4, LENGTH).transpose(1, 0)

    def __len__(self) -> int:
        return LENGTH - WINDOW - AHEAD + 1

    def __getitem__(self, index: int):
        end = index + WINDOW
        part = slice(end - 2, end + AHEAD)
        return self.data[index:end], self.data[part], self.stamps[index:end], self.stamps[part]


class Rows(Dataset):
    def __init__(self) -> None:
        self.x = torch.randn(50, 2, 3).transpose(1, 2)
        self.y = torch.arange(50)

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index):
        return [self.x[index], self.y[index]]


class Named(Rows):
    """As the data sets of tables are written: parts with names."""

    def __getitem__(self, index):
        return {"continuous": self.x[index], "target": self.y[index]}


class Tokens(Dataset):
    def __init__(self) -> None:
        self.tokens = torch.randint(0, 65, (200,))

    def __len__(self) -> int:
        return 180

    def __getitem__(self, index):
        return self.tokens[index : index + 16]


class ReadOnly(Windows):
    def __init__(self) -> None:
        super().__init__()
        self.data.flags.writeable = False


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("make", [Windows, Rows, Named, Tokens, ReadOnly])
@pytest.mark.parametrize("is_subset", [False, True])
def test_a_batch_of_views_equals_torchs_own_bit_for_bit(make: type, is_subset: bool) -> None:  # noqa: FBT001
    dataset = make()
    if is_subset:
        dataset = Subset(dataset, [7, 3, 40, 3, 0, 25])
    before = random_states(torch)

    whole = whole_batch_fetch.find_whole(torch, dataset)

    assert isinstance(whole, WholeViews)
    assert random_states(torch) == before
    for rows in ([0], [5, 1, 1, 3], [len(dataset) - 1, 0]):
        assert content_of(whole.__getitems__(rows)) == content_of(whole.collate_samples(rows))


def test_a_loader_gives_the_same_batches_with_the_lever_and_with_workers() -> None:
    def batches(num_workers: int):
        torch.manual_seed(0)
        loader = DataLoader(Windows(), batch_size=16, shuffle=True, num_workers=num_workers)
        return [content_of(batch) for batch in loader]

    bare = batches(0)
    undo = whole_batch_fetch.LEVER.apply({}, SimpleNamespace(torch=torch))
    try:
        assert batches(0) == bare
        assert batches(1) == bare
    finally:
        undo()


class Drawing(Windows):
    def __getitem__(self, index):
        noise = torch.randn(1).item()
        return self.data[index : index + WINDOW] + noise, self.stamps[index]


class OwnDraws(Windows):
    def __init__(self) -> None:
        super().__init__()
        self.rng, self.num_reads = random.Random(0), 0

    def __getitem__(self, index):
        self.num_reads += 1
        return self.data[index + self.rng.randrange(2)]


class Numbers(Rows):
    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


class Flipped(Windows):
    """Every seventh sample is the one before."""

    def __getitem__(self, index):
        return super().__getitem__(index - (index % 7 == 6))


class Cast(Windows):
    def __getitem__(self, index):
        return self.data[index].view(np.int64)


class Copies(Windows):
    def __getitem__(self, index):
        return self.data[index].astype(np.float32)


class Trained(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.x = torch.randn(50, 3, requires_grad=True)


class Raising(Windows):
    def __getitem__(self, index):
        raise RuntimeError("not this one")


@pytest.mark.parametrize("make", [Drawing, OwnDraws, Numbers, Flipped, Cast, Copies, Trained])
def test_other_samples_are_left_to_torch(make: type) -> None:
    dataset, before = make(), random_states(torch)

    assert whole_batch_fetch.find_whole(torch, dataset) is None
    assert random_states(torch) == before
    assert not getattr(dataset, "num_reads", 0)  # it would have drawn


def test_what_may_open_a_file_late_is_not_read_before_its_workers_start() -> None:
    dataset = Windows()
    assert whole_batch_fetch.find_whole(torch, dataset, is_forked_later=True)
    dataset.file = None
    assert whole_batch_fetch.find_whole(torch, dataset, is_forked_later=True) is None
    assert whole_batch_fetch.find_whole(torch, dataset)


def test_a_data_set_that_raises_is_left_to_torch() -> None:
    assert whole_batch_fetch.find_whole(torch, Raising()) is None


def test_a_data_set_that_changes_is_left_to_torch_from_then_on() -> None:
    dataset = Windows()
    whole = whole_batch_fetch.find_whole(torch, dataset)
    dataset.data = dataset.data * 2

    batch = whole.__getitems__([3, 4])

    assert torch.equal(batch[0][0], torch.from_numpy(dataset.data[3 : 3 + WINDOW]))
    assert not whole.tables


def test_indices_from_the_end_are_left_to_torch() -> None:
    whole = whole_batch_fetch.find_whole(torch, Rows())

    assert content_of(whole.__getitems__([-1, 2])) == content_of(whole.collate_samples([-1, 2]))


def test_what_is_written_into_the_arrays_is_in_the_next_batch() -> None:
    dataset = Rows()
    whole = whole_batch_fetch.find_whole(torch, dataset)
    dataset.x[5] = 9.0

    assert torch.equal(whole.__getitems__([5, 6])[0][0], torch.full((3, 2), 9.0))
