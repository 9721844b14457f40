"""Planted bugs of loaders, and sound ones: what `steptime data check` says of each.

    python benchmarks/data/data_bugs.py [--only NAME ...] [--pictures FOLDER] [--out FILE]

Each bug is planted 20 times, with other sizes, seeds, workers and ways to make the mistake; 20
kinds of sound loaders are checked beside them. A child is a fork that has torch in memory, with the
guest's hooks on torch's loader; ranks are two forks that meet over gloo. What the children wrote is
judged by the functions that judge for the command (`tests/end_to_end/test_data_check.py` holds that
the command does the same with a script and contained children). A bug counts as named if its own
check fails. The level of the shuffle test is counted on random orders, and the false rate of the
perceptual hash on pairs of the JPEG files in `--pictures`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
OUT = BENCHMARKS / "results" / "data_bugs.json"
sys.path.insert(0, str(BENCHMARKS.parent / "tests"))

import torch  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from order_cases import loader_seen, tensors, trainer, watched  # noqa: E402
from steptime.data.check.epoch_checks import check_epochs  # noqa: E402
from steptime.data.check.resume_checks import check_resume  # noqa: E402
from steptime.data.check.seen_orders import LoaderSeen  # noqa: E402
from steptime.data.check.shuffle_checks import check_shuffle, check_sorted  # noqa: E402
from steptime.data.check.worker_checks import check_workers  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402

TIMES = 20
NUM_ORDERS = 1_000
WORKERS = (0, 2)


class Case:
    """One loader: how it is made, what begins an epoch, and how it resumes."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        begin: Callable[[Any, int], object] = lambda loader, epoch: None,
        resume: Callable[[], object] | None = None,
        world_size: int = 1,
    ) -> None:
        self.make, self.begin, self.resume, self.world_size = make, begin, resume, world_size


# -- children


def in_fork(folder: Path, act: Callable[[], object], **wish: Any) -> list[LoaderSeen]:
    """Train in a fork, and return the loaders that it saw."""
    from steptime.data.check.seen_orders import read_orders

    def child() -> None:
        torch.set_num_threads(1)
        watched(folder, act, **wish)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return read_orders(folder)


def on_ranks(folder: Path, case: Case) -> list[LoaderSeen]:
    """Train on several ranks, and return what each saw."""
    from steptime.data.check.seen_orders import read_orders

    def child(rank: int) -> None:
        torch.set_num_threads(1)
        store = f"file://{folder}/store"
        torch.distributed.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=case.world_size
        )
        watched(folder / "orders", trainer(case.make, begin=case.begin), batches=5)

    folder.mkdir()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=child, args=(rank,)) for rank in range(case.world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return read_orders(folder / "orders")


def saving(case: Case) -> Callable[[], None]:
    """Return a training that saves a checkpoint at the end of each epoch."""

    def begin(loader: Any, epoch: int) -> None:
        if epoch:
            torch.save({"epoch": epoch}, "/dev/null")
        case.begin(loader, epoch)

    return trainer(case.make, begin=begin)


def failures(case: Case, folder: Path) -> dict[str, str]:
    """Check a loader in all ways that apply; return the checks that failed, with their findings."""
    if case.world_size > 1:
        loaders = on_ranks(folder / "ranks", case)
    else:
        loaders = in_fork(folder / "script", trainer(case.make, begin=case.begin), batches=20)
    trained = [one for one in loaders if one.trained]
    checks = [*check_epochs(trained), check_shuffle(trained[0]), check_sorted(trained[0])]
    if case.world_size == 1:
        checks.append(_over_workers(case, folder))
    if case.resume is not None:
        before = in_fork(folder / "before", saving(case), last_batches=0)
        after = in_fork(folder / "after", case.resume, epochs=1)
        checks.append(check_resume(before[0], after[0] if after else None))
    return {one.name: one.finding for one in checks if one.outcome is Outcome.FAIL}


def _over_workers(case: Case, folder: Path) -> Any:
    def see(workers: int, name: str) -> LoaderSeen:
        act = trainer(case.make, begin=case.begin)
        wish = {"epochs": 1, "batches": 20, "num_workers": workers, "seed": 7}
        return in_fork(folder / name, act, **wish)[0]

    children = {workers: see(workers, f"workers-{workers}") for workers in WORKERS}
    check = check_workers(children, again=None)
    if check.outcome is Outcome.FAIL:
        check = check_workers(children, again=see(0, "again"))
    return check


# -- planted bugs; `n` chooses size, seed and the way to make the mistake


def size_of(n: int) -> int:
    return 64 + 24 * n + n % 7


def batch_of(n: int) -> int:
    return (4, 8, 16)[n % 3]


def replayed(n: int) -> Case:
    """An epoch's order that comes again after a resume."""
    data, size = tensors(size_of(n), seed=n), batch_of(n)
    if n % 2:  # the epoch starts at 0 again

        def make() -> Any:
            return DataLoader(data, size, sampler=DistributedSampler(data, 1, 0, seed=n))

        def begin(loader: Any, epoch: int) -> None:
            loader.sampler.set_epoch(epoch)

        return Case(make, begin=begin, resume=trainer(make, begin=begin))

    def make_seeded() -> Any:  # the generator is seeded again
        generator = torch.Generator().manual_seed(n)
        return DataLoader(data, size, shuffle=True, generator=generator)

    return Case(make_seeded, resume=trainer(make_seeded))


def forgotten(n: int) -> Case:
    """A `set_epoch` that nobody calls."""
    data = tensors(size_of(n), seed=n)
    replicas = 1 + n % 4

    def make() -> Any:
        sampler = DistributedSampler(data, replicas, n % replicas, seed=n, drop_last=bool(n % 2))
        return DataLoader(data, batch_of(n), sampler=sampler)

    return Case(make)


def overlapping(n: int) -> Case:
    """Ranks that share samples."""
    data = tensors(size_of(n), seed=n)

    def make() -> Any:
        rank = torch.distributed.get_rank()
        if n % 3 == 0:  # no sampler, one seed
            torch.manual_seed(n)
            return DataLoader(data, batch_of(n), shuffle=True)
        if n % 3 == 1:  # no sampler, a seed each
            torch.manual_seed(n + rank)
            return DataLoader(data, batch_of(n), shuffle=True)
        half, shared = len(data) // 2, 3 + n  # parts that are cut one behind the other
        begin = max(0, half * rank - shared)
        return DataLoader(
            data, batch_of(n), sampler=SubsetRandomSampler(range(begin, begin + half))
        )

    return Case(make, world_size=2)


class Cut(torch.utils.data.Sampler):
    """Takes as many samples as fill all batches, always the same ones."""

    def __init__(self, num: int, size: int) -> None:
        self.num = num - num % size or num

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.num).tolist())


class Whole(IterableDataset):
    """Samples that workers share out in a way that the class says."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def part(self) -> Any:
        return range(len(self.data))

    def __iter__(self) -> Iterator[Any]:
        for index in self.part():
            yield self.data[index]


class Divided(Whole):
    """Equal parts: what does not divide is lost."""

    def part(self) -> Any:
        info = get_worker_info()
        if info is None:
            return range(len(self.data))
        num = len(self.data) // info.num_workers
        return range(info.id * num, (info.id + 1) * num)


class Strided(Whole):
    """Every worker its own; nothing is lost."""

    def part(self) -> Any:
        info = get_worker_info()
        return range(
            0 if info is None else info.id, len(self.data), info.num_workers if info else 1
        )


class Buffered(Strided):
    """Shuffled within a buffer, from a generator of its own."""

    def __iter__(self) -> Iterator[Any]:
        held, generator = [], random.Random(3)
        for index in self.part():
            held.append(index)
            if len(held) > 16:
                yield self.data[held.pop(generator.randrange(len(held)))]
        for index in held:
            yield self.data[index]


def lost(n: int) -> Case:
    """Samples that no epoch has."""
    odd = size_of(n) * 2 + 1
    data, size = tensors(odd if odd % 8 else odd + 2, seed=n), 4 if n % 2 else 8
    if n % 3 == 0:
        return Case(lambda: DataLoader(data, size, sampler=Cut(len(data), size)))
    if n % 3 == 1:
        return Case(lambda: DataLoader(data, size, drop_last=True))
    few = tensors(2 * (20 + n) + 1, seed=n)
    return Case(lambda: DataLoader(Divided(few), 8))


def in_order(n: int) -> Case:
    """Classes one after another."""
    data, size = tensors(size_of(n), seed=n, is_sorted=True), batch_of(n)
    if n % 3 == 0:
        return Case(lambda: DataLoader(data, size))
    if n % 3 == 1:
        sampler = DistributedSampler(data, 1, 0, shuffle=False)
        return Case(lambda: DataLoader(data, size, sampler=sampler))
    small = tensors(60 + n, seed=n, is_sorted=True)
    return Case(lambda: DataLoader(Strided(small), size))


def copied(n: int) -> Case:
    """An iterable data set of which each worker has a copy."""
    data = tensors(size_of(n), seed=n)
    return Case(lambda: DataLoader(Whole(data), batch_of(n), num_workers=n % 3))


BUGS: dict[str, tuple[Callable[[int], Case], tuple[str, ...]]] = {
    "order replayed after a resume": (replayed, ("resume",)),
    "set_epoch forgotten": (forgotten, ("set_epoch",)),
    "overlapping ranks": (overlapping, ("ranks_apart",)),
    "samples lost": (lost, ("samples_lost", "same_over_workers")),
    "sorted input": (in_order, ("sorted_input",)),
    "iterable copied by workers": (copied, ("same_over_workers",)),
}


# -- sound loaders


class Dicts(Dataset):
    """Samples as dictionaries, with noise that is drawn anew each time."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        inputs, label = self.data[index]
        return inputs + torch.randn(4), label


class Balanced(torch.utils.data.Sampler):
    """As many of each class, drawn anew each epoch."""

    def __init__(self, labels: Any) -> None:
        self.groups = [(labels == one).nonzero().flatten() for one in labels.unique()]

    def __iter__(self) -> Iterator[int]:
        least = min(map(len, self.groups))
        drawn = torch.stack([one[torch.randperm(len(one))[:least]] for one in self.groups])
        return iter(drawn.T.flatten().tolist())


class ByLength(torch.utils.data.Sampler):
    """Batches of neighbors, shuffled."""

    def __init__(self, num: int, size: int) -> None:
        self.num, self.size = num, size

    def __iter__(self) -> Iterator[list[int]]:
        for begin in torch.randperm(self.num // self.size).tolist():
            yield list(range(begin * self.size, (begin + 1) * self.size))


def told(loader: Any, epoch: int) -> None:
    loader.sampler.set_epoch(epoch)


def sound() -> dict[str, Case]:
    """Return 20 kinds of loaders in which nothing is wrong."""
    data = tensors(264, seed=1)
    whole = DistributedSampler
    halves = torch.randperm(264, generator=torch.Generator().manual_seed(2)).tolist()
    split = torch.utils.data.random_split(data, [200, 64])

    def later() -> None:  # an epoch that is resumed as it should be
        trainer(lambda: DataLoader(data, 8, sampler=whole(data, 1, 0)),
                begin=lambda loader, epoch: told(loader, epoch + 1))()  # fmt: skip

    def ranks() -> Any:
        return DataLoader(data, 8, sampler=whole(data))

    return {
        "shuffle": Case(lambda: DataLoader(data, 8, shuffle=True)),
        "two workers": Case(lambda: DataLoader(data, 8, shuffle=True, num_workers=2)),
        "persistent workers": Case(
            lambda: DataLoader(data, 8, shuffle=True, num_workers=1, persistent_workers=True)
        ),
        "drop_last": Case(lambda: DataLoader(data, 9, shuffle=True, drop_last=True)),
        "one batch an epoch": Case(lambda: DataLoader(data, 264, shuffle=True)),
        "a generator of its own": Case(
            lambda: DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(3))
        ),
        "not shuffled, mixed classes": Case(lambda: DataLoader(data, 8)),
        "with replacement": Case(
            lambda: DataLoader(data, 8, sampler=RandomSampler(data, replacement=True))
        ),
        "weighted": Case(
            lambda: DataLoader(data, 8, sampler=WeightedRandomSampler(torch.rand(264), 264))
        ),
        "a split by a sampler": Case(
            lambda: DataLoader(data, 8, sampler=SubsetRandomSampler(halves[:150]))
        ),
        "a split by Subset": Case(lambda: DataLoader(Subset(data, halves[:150]), 8, shuffle=True)),
        "random_split": Case(lambda: DataLoader(split[0], 8, shuffle=True)),
        "two data sets": Case(
            lambda: DataLoader(ConcatDataset([data, tensors(80, seed=2)]), 8, shuffle=True)
        ),
        "random transforms": Case(lambda: DataLoader(Dicts(data), 8, shuffle=True)),
        "balanced classes": Case(lambda: DataLoader(data, 8, sampler=Balanced(data.tensors[1]))),
        "batches of neighbors": Case(lambda: DataLoader(data, batch_sampler=ByLength(264, 8))),
        "a batch sampler": Case(
            lambda: DataLoader(
                data, batch_sampler=BatchSampler(RandomSampler(data), 8, drop_last=False)
            )
        ),
        "set_epoch, resumed": Case(
            lambda: DataLoader(data, 8, sampler=whole(data, 1, 0)), begin=told, resume=later
        ),
        "two ranks": Case(ranks, begin=told, world_size=2),
        "iterable, a buffer, shared by workers": Case(lambda: DataLoader(Buffered(data), 8)),
    }


# -- the tables


def count_bugs(names: list[str]) -> dict[str, Any]:
    """Return how often each bug was named, and what else failed."""
    table: dict[str, Any] = {}
    for name in names or BUGS:
        plant, expected = BUGS[name]
        named, others = 0, Counter()
        for n in range(TIMES):
            with tempfile.TemporaryDirectory() as folder:
                found = failures(plant(n), Path(folder))
            named += any(one in found for one in expected)
            others.update(one for one in found if one not in expected)
            if not any(one in found for one in expected):
                print(f"  missed: {name} {n}: {found}", flush=True)
        table[name] = {"named": named, "of": TIMES, "also": dict(others)}
        print(f"{name}: {named} of {TIMES}; also {dict(others)}", flush=True)
    return table


def count_sound() -> dict[str, Any]:
    """Return the sound loaders of which a check failed."""
    table = {}
    for name, case in sound().items():
        with tempfile.TemporaryDirectory() as folder:
            table[name] = failures(case, Path(folder))
        if table[name]:
            print(f"  sound, and failed: {name}: {table[name]}", flush=True)
    num = sum(not found for found in table.values())
    print(f"sound loaders without a failure: {num} of {len(table)}", flush=True)
    return {
        "without_failure": num,
        "of": len(table),
        "failed": {k: v for k, v in table.items() if v},
    }


def shuffle_level() -> dict[str, Any]:
    """Return how often the shuffle test fails random orders, with four classes."""
    failed, generator = [], random.Random(11)
    for _ in range(NUM_ORDERS):
        order = generator.sample(range(256), 256)
        seen = loader_seen(order, labels=[index % 4 for index in range(256)], batch_size=16)
        failed.append(check_shuffle(seen).outcome is Outcome.FAIL)
    in_pairs = sum(map(all, zip(failed[::2], failed[1::2], strict=True)))
    print(f"random orders that fail: {sum(failed)} of {NUM_ORDERS}; both of two: {in_pairs}")
    return {"failed": sum(failed), "of": NUM_ORDERS, "both_of_two": in_pairs}


def false_hashes(folder: Path) -> dict[str, Any]:
    """Return how many pairs of different JPEG files the perceptual hash takes for one picture."""
    import numpy as np

    from steptime.data.check.image_hashes import dhash, is_telling, pixels_of, similar_pairs

    files = {path.read_bytes(): path for path in sorted(folder.rglob("*.jp*g"))}
    hashes = [(dhash(pixels), path) for held, path in files.items()
              if (pixels := pixels_of(held)) is not None]  # fmt: skip
    telling = [(value, path) for value, path in hashes if is_telling(value)]
    values = np.array([value for value, _ in telling], dtype=np.uint64)
    pairs = [(i, j) for i, j in similar_pairs(values, values) if i < j]
    num_pairs = len(values) * (len(values) - 1) // 2
    for i, j in pairs[:20]:
        print(f"  alike: {telling[i][1]} {telling[j][1]}")
    print(f"pairs that look alike: {len(pairs)} of {num_pairs}", flush=True)
    facts = {"pictures": len(hashes), "telling": len(values), "alike": len(pairs)}
    return facts | {"pairs": num_pairs, "rate": len(pairs) / max(1, num_pairs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], choices=[*BUGS, "sound", "level"])
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    bugs = [name for name in options.only if name in BUGS]
    if bugs or not options.only:
        found["bugs"] = found.get("bugs", {}) | count_bugs(bugs)
    if "sound" in options.only or not options.only:
        found["sound"] = count_sound()
    if "level" in options.only or not options.only:
        found["shuffle_level"] = shuffle_level()
    if options.pictures is not None:
        found["hashes"] = false_hashes(options.pictures)
    found |= stamp()
    found["versions"] = {"torch": torch.__version__, "python": sys.version.split()[0]}
    options.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
