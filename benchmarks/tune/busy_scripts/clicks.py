"""Click prediction as in DLRM: rows are parsed in Python while the model waits, so workers pay."""

import hashlib
import math

import torch
from _pace import read_options, steps
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_TABLES, NUM_NUMBERS, ROWS = 16, 13, 20_000


class Clicks(Dataset):
    """Lines of text, as a log has them; each is taken apart when it is asked for."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        words = [f"{index}:{table}".encode() for table in range(NUM_TABLES)]
        places = [int.from_bytes(hashlib.sha256(word).digest()[:4], "big") % 1000 for word in words]
        numbers = [math.log1p((index * 31 + place) % 997) for place in range(NUM_NUMBERS)]
        return torch.tensor(places), torch.tensor(numbers), torch.tensor(float(index % 3 == 0))


class Predictor(nn.Module):
    """Embeddings of the words, and a network over them and the numbers."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(NUM_TABLES))
        width = 32 * NUM_TABLES + NUM_NUMBERS
        self.top = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, places, numbers):
        found = [table(places[:, number]) for number, table in enumerate(self.tables)]
        return self.top(torch.cat([*found, numbers], dim=1)).squeeze(1)


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    workers = {"num_workers": 1, "persistent_workers": True} if options.remedy else {}
    loader = DataLoader(Clicks(), batch_size=256, shuffle=True, **workers)
    model = Predictor()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    batches = iter(loader)
    for _ in steps(options.steps):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        places, numbers, clicked = batch
        loss = nn.functional.binary_cross_entropy_with_logits(model(places, numbers), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
