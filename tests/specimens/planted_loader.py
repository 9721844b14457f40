"""Loop with one slow part, named by `--plant`: what `steptime data bench` must find."""

import argparse
import io
import time

import torch
from PIL import Image, ImageFile
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

PLANTS = ("fetch", "decode", "transform", "collate", "copy", "consumer")
SLOW_S = 0.002


def spin(seconds):
    """Keep the processor busy for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class SpinningImage(ImageFile.ImageFile):
    """A format of Pillow's whose decoder takes long."""

    format, slow_s = "SPIN", 0.0

    def _open(self):
        self._size, self._mode, self.tile = (4, 4), "L", []

    def load(self):
        spin(self.slow_s)
        self.im = Image.core.new("L", self.size)


class Compose:
    """A chain like torchvision's."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToNumbers:
    def __call__(self, image):
        return torch.zeros(16)


class Rotate:
    def __init__(self, slow_s):
        self.slow_s = slow_s

    def __call__(self, numbers):
        spin(self.slow_s)
        return numbers


class Images(Dataset):
    def __init__(self, plant, num):
        self.fetch_s = SLOW_S if plant == "fetch" else 0.0
        self.num = num
        self.transform = Compose([ToNumbers(), Rotate(SLOW_S if plant == "transform" else 0.0)])

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        if self.fetch_s:
            time.sleep(self.fetch_s)
        image = Image.open(io.BytesIO(b"SPIN"))
        image.load()
        return self.transform(image), index % 4


class Stream(IterableDataset):
    def __init__(self, images):
        self.images = images

    def __iter__(self):
        for index in range(len(self.images)):
            yield self.images[index]


class Batch:
    """A batch that copies itself, as those of graph libraries do."""

    def __init__(self, x, y, slow_s):
        self.x, self.y, self.slow_s = x, y, slow_s

    def to(self, device):
        spin(self.slow_s)
        return Batch(self.x.to(device), self.y.to(device), self.slow_s)


class Collate:
    def __init__(self, plant):
        self.collate_s = 4 * SLOW_S if plant == "collate" else 0.0
        self.copy_s = 4 * SLOW_S if plant == "copy" else 0.0

    def __call__(self, samples):
        spin(self.collate_s)
        x, y = torch.utils.data.default_collate(samples)
        return Batch(x, y, self.copy_s)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant", choices=("none", *PLANTS), default="none")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--num-samples", type=int, default=400)
    parser.add_argument("--num-epochs", type=int, default=4)
    parser.add_argument("--iterable", action="store_true")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    Image.register_open("SPIN", SpinningImage, lambda prefix: prefix[:4] == b"SPIN")
    SpinningImage.slow_s = SLOW_S if args.plant == "decode" else 0.0
    images = Images(args.plant, args.num_samples)
    train = DataLoader(
        Stream(images) if args.iterable else images,
        batch_size=4,
        shuffle=None if args.iterable else True,
        num_workers=args.num_workers,
        collate_fn=Collate(args.plant),
    )
    test = DataLoader(Images("none", 8), batch_size=4, collate_fn=Collate("none"))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.num_epochs):
        for batch in train:
            batch = batch.to("cpu")
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch.x), batch.y)
            loss.backward()
            optimizer.step()
            if args.plant == "consumer":
                time.sleep(15 * SLOW_S)  # as one waits for a device
        with torch.no_grad():
            for batch in test:
                model(batch.x)
    print(f"loss {loss.item()!r}")


if __name__ == "__main__":
    main()
