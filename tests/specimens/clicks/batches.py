"""A data set whose samples are whole batches."""

from torch.utils.data import Dataset

from .generator import make_batch, read_batch


class ClickBatches(Dataset):
    def __init__(self, num_batches, size, source):
        self.num_batches, self.size, self.source = num_batches, size, source

    def __len__(self):
        return self.num_batches

    def __getitem__(self, index):
        if self.source == "random":
            batch = make_batch(self.size, [500] * 4)
        elif self.source == "file":
            batch = read_batch("clicks.txt", index)
        else:
            raise ValueError(self.source)
        return batch


def first_of(batches):
    return batches[0]
