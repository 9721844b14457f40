"""The guest's part of `steptime data check`: what a script's own loaders are seen to do."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from order_cases import tensors, trainer, watched  # noqa: E402
from steptime.data.check.epoch_checks import check_epochs  # noqa: E402
from steptime.data.check.leak_checks import check_loaders_apart  # noqa: E402
from steptime.data.check.worker_checks import check_workers  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402

DataLoader, Distributed = torch.utils.data.DataLoader, torch.utils.data.DistributedSampler


def seen(folder, make_loader, **asked):
    asked = {"epochs": 2, "batches": 4} | asked
    wish = {name: asked.pop(name) for name in ("epochs", "batches", "num_workers", "seed")
            if name in asked}  # fmt: skip
    return watched(folder, trainer(make_loader, **asked), **wish)


def test_an_order_is_whole_although_a_few_batches_were_read(tmp_path):
    (loader,) = seen(tmp_path, lambda: DataLoader(tensors(), batch_size=8, shuffle=True))

    first, second = loader.epochs
    assert sorted(first.order) == sorted(second.order) == list(range(64))
    assert first.order != second.order
    assert len(first.digests) == 4
    assert not first.is_at_end
    assert loader.place.startswith("tests/unit/test_order_book.py:")
    assert len(loader.labels) == 64


def test_digests_say_which_sample_a_row_is(tmp_path):
    (loader,) = seen(tmp_path, lambda: DataLoader(tensors(), batch_size=8), epochs=2)

    first, second = loader.epochs
    assert first.digests == second.digests
    assert len({digest for batch in first.digests for digest in batch}) == 32


def test_a_loader_that_only_evaluates_does_not_train_although_it_has_the_same_data(tmp_path):
    data = tensors()
    evaluation = DataLoader(data, batch_size=8)

    def evaluate(*_):
        with torch.no_grad():
            list(evaluation)

    loaders = seen(tmp_path, lambda: DataLoader(data, batch_size=8, shuffle=True), begin=evaluate)

    assert [one.nature["is_shuffled"] for one in loaders if one.trained] == [True]
    assert len(loaders) == 2


def test_a_look_at_the_first_batch_is_no_epoch(tmp_path):
    def make():
        loader = DataLoader(tensors(), batch_size=8, sampler=Distributed(tensors(), 1, 0))
        next(iter(loader))
        return loader

    (loader,) = seen(tmp_path, make, begin=lambda loader, n: loader.sampler.set_epoch(n))

    assert [one.epoch for one in loader.epochs] == [0, 1]


def test_a_forgotten_set_epoch_is_named(tmp_path):
    def make():
        return DataLoader(tensors(), batch_size=8, sampler=Distributed(tensors(), 1, 0))

    (loader,) = seen(tmp_path, make)

    failures = [one.name for one in check_epochs([loader]) if one.outcome is Outcome.FAIL]
    assert failures == ["set_epoch"]


def test_a_loader_that_is_made_anew_each_epoch_is_one_loader(tmp_path):
    data = tensors()

    def train():
        weights = torch.nn.Linear(4, 4)
        for _ in range(3):
            for inputs, _labels in DataLoader(data, batch_size=8, shuffle=True):
                weights(inputs).sum().backward()

    (loader,) = watched(tmp_path, train, epochs=2, batches=3)

    assert len(loader.epochs) == 2


class Copied(torch.utils.data.IterableDataset):
    """Each worker that has a copy gives all samples."""

    def __iter__(self):
        yield from tensors(24)


def test_copies_of_an_iterable_data_set_in_workers_are_named(tmp_path):
    children = {
        workers: seen(
            tmp_path / str(workers),
            lambda: DataLoader(Copied(), batch_size=4),
            epochs=1,
            batches=20,
            num_workers=workers,
            seed=1,
        )[0]
        for workers in (0, 2)
    }

    check = check_workers(children, again=None)

    assert check.outcome is Outcome.FAIL
    assert "comes 2 times" in check.finding


def test_seeds_make_children_with_workers_and_without_comparable(tmp_path):
    def child(workers):
        def make():
            return DataLoader(tensors(), batch_size=8, shuffle=True)

        return seen(
            tmp_path / str(workers), make, epochs=1, batches=3, num_workers=workers, seed=1
        )[0]

    check = check_workers({workers: child(workers) for workers in (0, 1)}, again=None)

    assert check.outcome is Outcome.PASS


def test_workers_draw_an_order_once_although_their_loader_makes_two_iterators(tmp_path):
    def make():
        generator = torch.Generator().manual_seed(3)
        return DataLoader(tensors(), batch_size=8, shuffle=True, generator=generator)

    bare = list(iter(make().batch_sampler))
    loader = watched(tmp_path, trainer(make), epochs=2, batches=3, num_workers=1)[0]

    assert [one.number for one in loader.passes] == [0, 1]
    assert len(loader.epochs[0].order) == sum(map(len, bare))


def test_accelerates_loaders_are_read_one_batch_ahead(tmp_path):
    accelerate = pytest.importorskip("accelerate")

    def make():
        loader = DataLoader(tensors(), batch_size=8, shuffle=True)
        return accelerate.Accelerator(cpu=True).prepare(loader)

    (loader,) = seen(tmp_path, make)

    assert [one.ahead for one in loader.epochs] == [1, 1]
    assert loader.epochs[0].order != loader.epochs[1].order


# -- contents


class Noisy(torch.utils.data.Dataset):
    """Torchvision's way: what is held, and a transform."""

    def __init__(self, data, transform):
        self.data, self.transform = data, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        inputs, label = self.data[index]
        return (inputs if self.transform is None else self.transform(inputs)), label


def leak(folder, evaluation, training):
    def make():
        DataLoader(evaluation, batch_size=8)
        return DataLoader(training, batch_size=8, shuffle=True)

    (check,) = check_loaders_apart(watched(folder, trainer(make), batches=3, contents=True))
    return check


def noise(inputs):
    return inputs + torch.randn(4)


def test_a_leak_is_found_below_random_transforms_and_in_a_loader_that_was_not_used(tmp_path):
    data, other = tensors(), tensors(16, seed=5)
    joined = torch.utils.data.ConcatDataset([torch.utils.data.Subset(data, [3, 9]), other])

    check = leak(tmp_path, joined, Noisy(data, noise))

    assert check.outcome is Outcome.FAIL
    assert check.finding.startswith("2 of 18 samples")
    assert check.evidence[0].startswith("its sample 0 is sample 3 of")


def test_splits_without_a_common_sample_pass(tmp_path):
    train, evaluation = torch.utils.data.random_split(tensors(), [48, 16])

    assert leak(tmp_path, evaluation, train).outcome is Outcome.PASS


def test_the_training_data_evaluated_may_be_meant(tmp_path):
    data = tensors()

    def make():
        with torch.no_grad():
            list(DataLoader(data, batch_size=8))
        return DataLoader(data, batch_size=8, shuffle=True)

    (check,) = check_loaders_apart(watched(tmp_path, trainer(make), batches=3, contents=True))

    assert check.outcome is Outcome.INCONCLUSIVE


def test_a_loader_that_a_library_made_another_one_of_is_left_out(tmp_path):
    data = tensors()

    def make():
        DataLoader(data, batch_size=8)
        return DataLoader(data, batch_size=8, shuffle=True)

    assert not check_loaders_apart(watched(tmp_path, trainer(make), batches=3, contents=True))


def test_samples_that_are_random_cannot_be_compared(tmp_path):
    class Random(Noisy):
        def __getitem__(self, index):
            return torch.randn(4), 0

    assert leak(tmp_path, tensors(8), Random(tensors(), None)).outcome is Outcome.INCONCLUSIVE
