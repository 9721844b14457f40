"""Trains with and without a lever of the loader, and tells of both: a JSON list of tries."""

import json
import multiprocessing
import random
import sys
from importlib import import_module
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from steptime.levers import load
from steptime.levers.pictures.pixel_store import ENTRY, HEADER, KEY


class Rows(Dataset):
    """Deterministic, map-style; counts its reads in this process."""

    def __init__(self, num=40, scale=1.0):
        self.num, self.scale, self.reads = num, scale, []

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        self.reads.append(int(index))
        generator = torch.Generator().manual_seed(int(index))
        return self.scale * torch.randn(6, generator=generator), int(index) % 3


READS = []


class Plain(Rows):
    """Holds plain values that no read changes; its reads are counted outside of it."""

    def __init__(self):
        self.num, self.scale = 40, 1.0
        READS.clear()

    @property
    def reads(self):
        return READS


FACTOR = [1.0]


class Global(Plain):
    """Depends on something that is no part of it."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return FACTOR[0] * x, y


class Noisy(Rows):
    """Augments: draws from torch's generator."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(6), y


class Fickle(Rows):
    """Other samples each time, from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.own = random.Random(3)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x * self.own.random(), y


class Shared(Rows):
    """Hands out one buffer again and again."""

    def __init__(self):
        super().__init__()
        self.buffer = torch.zeros(6)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        self.buffer.copy_(x)
        return self.buffer, y


class Chain:
    """Applies transforms of a sample and its label, one after the other."""

    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, *values):
        for one in self.transforms:
            made = one(*values)
            values = made if isinstance(made, tuple) else (made,)
        return values if len(values) > 1 else values[0]


class Drawn(Plain):
    """Does its work, and then draws in a chain of transforms."""

    def __init__(self):
        super().__init__()
        self.augment = Chain(
            lambda x, y: (x * 2, y + 1),
            lambda x, y: (x + torch.rand(6), y),
            lambda x, y: (x.mul_(random.random()), y),
        )

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        x, y = self.augment(x, torch.tensor(y % 2))
        return {"x": x, "y": [y]}


class DrawnTwice(Plain):
    """Draws before the chain as well, so that nothing of it can be kept."""

    def __init__(self):
        super().__init__()
        self.augment = Chain(lambda x: x + torch.rand(6))

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        x = x * torch.rand(1)
        return self.augment(x), y


class Unhashable(Rows):
    __hash__ = None


def collate_in_place(samples):
    for x, _ in samples:
        x.mul_(2.0)  # changes what the data set gave
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


def stack(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


def stack_by_label(samples):
    return stack(sorted(samples, key=lambda sample: sample[1]))


def stack_and_center(samples):
    x, y = stack(samples)
    return x - x.mean(0), y


class Counted:
    """Gives each batch its number."""

    def __init__(self):
        self.num = 0

    def __call__(self, samples):
        self.num += 1
        x, y = stack(samples)
        return x + self.num, y


class Stacked(Plain):
    """Joins its samples by itself."""

    def join(self, samples):
        return stack(samples)


def own_method():
    dataset = Stacked()
    return DataLoader(
        Subset(dataset, range(1, 30)), batch_size=8, shuffle=True, collate_fn=dataset.join
    )


def tensors(num=40):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(num, 6, generator=generator)
    return TensorDataset(x, torch.arange(num) % 3)


def train(loader, *, epochs=3, act=None, is_paired=False, after_step=lambda: None):
    """Losses, batches, kinds of containers, and where the random states are in the end."""
    torch.manual_seed(0)
    random.seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, batches, kinds = [], [], []
    if is_paired:
        for (x, _), (z, _) in zip(loader, loader, strict=True):
            batches.append((x + 2 * z).double().sum().item().hex())
    for epoch in range(epochs):
        if act is not None:
            act(loader.dataset, epoch)
        for batch in loader:
            x, y = (batch["x"], batch["y"][0]) if isinstance(batch, dict) else batch
            y = torch.as_tensor(y)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
            batches.append(x.double().sum().item().hex())
            kinds.append([type(batch).__name__, str(x.dtype), list(x.shape), list(x.stride())])
            after_step()
    return {
        "losses": losses,
        "batches": batches,
        "kinds": kinds,
        "next_random": [torch.rand(1).item().hex(), random.random().hex()],
    }


def scaled(dataset, epoch):
    dataset.scale = 1.0 + epoch


def changed_outside(dataset, epoch):
    FACTOR[0] = 1.0 + epoch


def cases():
    """By name: what makes a loader and how it is trained with."""
    shuffled = {"batch_size": 8, "shuffle": True}
    generator = torch.Generator()

    def own_generator():
        generator.manual_seed(11)
        return DataLoader(Rows(), **shuffled, generator=generator)

    def make(dataset_class, **arguments):
        sampling = {"batch_size": None} if "batch_size" in arguments else shuffled
        return lambda: DataLoader(dataset_class(), **{**sampling, **arguments})

    def train_part():
        return random_split(tensors(), [30, 10], torch.Generator().manual_seed(1))[0]

    return {
        "rows": (make(Rows), {}),
        "kept_by_the_script": (make(Rows, num_workers=2, persistent_workers=True), {}),
        "workers": (make(Rows, num_workers=2), {}),
        "plain": (make(Plain), {}),
        "plain_subset": (lambda: DataLoader(Subset(Plain(), range(1, 30)), **shuffled), {}),
        "plain_workers": (make(Plain, num_workers=2), {}),
        "plain_kept_workers": (make(Plain, num_workers=2, persistent_workers=True), {}),
        "plain_scaled": (make(Plain), {"act": scaled}),
        "global": (make(Global), {"act": changed_outside}),
        "global_workers": (make(Global, num_workers=2), {"act": changed_outside}),
        "own_generator": (own_generator, {}),
        "scaled": (make(Rows), {"act": scaled}),
        "noisy": (make(Noisy), {}),
        "fickle": (make(Fickle), {}),
        "shared": (make(Shared), {}),
        "in_place": (make(Rows, collate_fn=collate_in_place), {}),
        "read_twice_at_once": (make(Rows, shuffle=False), {"is_paired": True}),
        "in_place_one": (make(Rows, batch_size=None, shuffle=True), {}),
        "tensors": (lambda: DataLoader(tensors(), **shuffled), {}),
        "subset": (lambda: DataLoader(Subset(train_part(), range(3, 28)), **shuffled), {}),
        "tensors_workers": (lambda: DataLoader(tensors(), **shuffled, num_workers=2), {}),
        "list": (lambda: DataLoader([Rows()[i] for i in range(40)], **shuffled), {}),
        "drawn": (make(Drawn), {}),
        "drawn_workers": (make(Drawn, num_workers=2), {}),
        "drawn_scaled": (make(Drawn), {"act": scaled}),
        "drawn_twice": (make(DrawnTwice), {}),
        "plain_in_place": (make(Plain, collate_fn=collate_in_place), {}),
        "unhashable": (make(Unhashable), {}),
        "own_stack": (make(Plain, collate_fn=stack), {}),
        "own_stack_workers": (make(Plain, collate_fn=stack, num_workers=2), {}),
        "own_method": (own_method, {}),
        "by_label": (make(Plain, collate_fn=stack_by_label), {}),
        "centered": (make(Plain, collate_fn=stack_and_center), {}),
        "counted": (lambda: DataLoader(Plain(), **shuffled, collate_fn=Counted()), {}),
        "rows_subset": (lambda: DataLoader(Subset(Rows(), range(1, 30)), **shuffled), {}),
    }


class Switched:
    """A lever that is on for two steps and off for two, as where states are compared live."""

    def __init__(self, apply):
        self.apply, self.num_steps, self.undo = apply, 0, None

    def end_step(self):
        self.num_steps += 1
        if self.num_steps % 2 == 0:
            self.switch()

    def switch(self):
        if self.undo is None:
            self.undo = self.apply()
        else:
            self.undo()
            self.undo = None


def num_kept(name):
    """Samples that the last store of `dataset_cache` holds."""
    if name != "dataset_cache":
        return None
    known = import_module("steptime.levers.input.dataset_cache").KNOWN
    (store,) = [one.store for it in known.values() for one in it.known.values() if one] or (None,)
    ends = [HEADER + ENTRY * row + KEY + 8 for row in range(store.num_entries if store else 0)]
    return sum(any(store.table[end - 8 : end]) for end in ends)


def try_lever(name, case, settings, how="run"):
    make, arguments = cases()[case]
    found = {"bare": train(make(), **arguments)}
    session = SimpleNamespace(torch=torch, is_trial=how != "run")
    switched = Switched(lambda: load(name).apply(settings, session))
    loader = make()
    if how == "live":
        found["changed"] = train(loader, **arguments, after_step=switched.end_step)
    if switched.undo is None:
        switched.switch()
    if how != "live":
        found["changed"] = train(loader, **arguments)
    dataset = loader.dataset
    dataset = dataset.dataset if isinstance(dataset, Subset) else dataset
    found["num_reads"] = len(getattr(dataset, "reads", []))
    found["num_workers"] = loader.num_workers
    found["num_kept"] = num_kept(name)
    found["num_alive"] = len(multiprocessing.active_children())
    switched.switch()
    found["after"] = train(make(), **arguments)
    return found


def main():
    """One process for all: importing torch takes longer than all of them."""
    tries = json.loads(sys.argv[1])
    print(json.dumps([try_lever(*one) for one in tries]))


if __name__ == "__main__":
    main()
