"""Rows of tensors that are cut out one by one and put together again: whole batches pay."""

import torch
from _pace import read_options, steps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Batches(TensorDataset):
    """The remedy by hand."""

    def __getitems__(self, indices):
        index = torch.tensor(indices)
        return [tensor.index_select(0, index) for tensor in self.tensors]


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tensors = torch.randn(50_000, 32), torch.randint(0, 2, (50_000,))
    if options.remedy:
        loader = DataLoader(
            Batches(*tensors), batch_size=512, shuffle=True, collate_fn=lambda batch: batch
        )
    else:
        loader = DataLoader(TensorDataset(*tensors), batch_size=512, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader)
    for _ in steps(options.steps):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        rows, labels = batch
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
