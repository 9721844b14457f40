"""Pictures that are unpacked again in each epoch: to keep them in memory pays."""

import zlib

import torch
from _pace import read_options, steps
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_PICTURES = 256


class Packed(Dataset):
    """Pictures as they lie on a disk; `keeps` is the remedy by hand."""

    def __init__(self, *, keeps):
        generator = torch.Generator().manual_seed(0)
        self.files = []
        for _ in range(NUM_PICTURES):
            pixels = torch.randint(0, 40, (3, 96, 96), generator=generator, dtype=torch.uint8)
            self.files.append(zlib.compress(pixels.numpy().tobytes(), 9))
        self.kept = {} if keeps else None

    def __len__(self):
        return NUM_PICTURES

    def __getitem__(self, index):
        if self.kept is not None and index in self.kept:
            return self.kept[index]
        raw = torch.frombuffer(bytearray(zlib.decompress(self.files[index])), dtype=torch.uint8)
        whole = raw.view(1, 3, 96, 96).float() / 255
        small = nn.functional.interpolate(whole, size=(32, 32), mode="bilinear", antialias=True)
        sample = small[0], index % 10
        if self.kept is not None:
            self.kept[index] = sample
        return sample


def main() -> None:
    options = read_options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Packed(keeps=options.remedy), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader)
    for _ in steps(options.steps):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        images, labels = batch
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
