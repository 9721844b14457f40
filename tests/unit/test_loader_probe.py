"""What the guest finds out about a loader, and that it leaves no trace in the random states."""

import io
import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from steptime.guest.trial.looks.loader_probe import describe_loader, probe_loader, read_twice

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
data = torch.utils.data


class Rows(data.Dataset):
    """Deterministic; the other data sets are like it but for one thing."""

    def __init__(self, num=40):
        self.num, self.reads = num, []

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        self.reads.append(index)
        return {"x": torch.full((4,), float(index)), "y": index}


class Noisy(Rows):
    def __getitem__(self, index):
        random.random()
        return super().__getitem__(index)


class Fickle(Rows):
    def __getitem__(self, index):
        return super().__getitem__(index) | {"z": len(self.reads)}


class Odd(Rows):
    def __getitem__(self, index):
        return object()


class Stream(data.IterableDataset):
    def __iter__(self):
        yield from range(4)


def probe(dataset, **arguments):
    return probe_loader(torch, data.DataLoader(dataset, batch_size=4, **arguments))


def describe(dataset, **arguments):
    return describe_loader(torch, data.DataLoader(dataset, batch_size=4, **arguments))


def test_samples_that_are_equal_each_time_are_deterministic():
    found = probe(Rows())

    assert found["is_deterministic"] is True
    assert found["is_collate_deterministic"] is True
    assert 16 <= found["sample_bytes"] <= 2000


@pytest.mark.parametrize("dataset", [Noisy(), Fickle()], ids=["draws", "differs"])
def test_samples_that_draw_or_differ_are_not(dataset):
    assert probe(dataset)["is_deterministic"] is False


def test_a_batch_that_is_made_by_chance_is_told_from_samples_that_are_not():
    def collate(samples):
        return torch.rand(4)

    found = probe(Rows(), collate_fn=collate)
    assert (found["is_deterministic"], found["is_collate_deterministic"]) == (True, False)


def test_a_batch_of_the_scripts_own_kind_is_not_judged():
    found = probe(Rows(), collate_fn=lambda samples: object())

    assert "is_collate_deterministic" not in found
    assert found["is_deterministic"] is True


@pytest.mark.parametrize("dataset", [Odd(), Stream(), Rows(0)], ids=["odd", "stream", "empty"])
def test_what_cannot_be_tried_is_not_known(dataset):
    assert probe(dataset) == {}


class MayOpen(Rows):
    def __init__(self, held, path):
        super().__init__()
        self.file, self.path = held, path

    def __getitem__(self, index):
        if self.file is None:
            self.file = self.path.open("rb", buffering=0)
        self.file.seek(index)
        return {"x": self.file.read(1), "y": index}


class Draws(Rows):
    """What it draws is no part of its samples."""

    def __init__(self, held, find):
        super().__init__()
        self.held, self.find = held, find

    def __getitem__(self, index):
        generator = self.find(self.held)
        if isinstance(generator, torch.Generator):
            torch.rand(1, generator=generator)
        else:
            generator.random()
        return index


class Chain:
    """As torchvision's Compose; what holds nothing there holds None."""

    def __init__(self, steps):
        self.steps, self.interpolation = steps, None

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Composed:
    """Applies a list of transforms, as torchvision's does."""

    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, image):
        for one in self.transforms:
            image = one(image)
        return image


class Transformed(data.Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.transform(torch.full((3, 4, 4), index, dtype=torch.uint8)), index


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reading_leaves_nothing_behind(num_workers, tmp_path):
    """The first sample opens a file and keeps it, as data sets do that workers read."""
    path = tmp_path / "rows"
    path.write_bytes(bytes(200))
    dataset = MayOpen(None, path)

    found = probe(dataset, num_workers=num_workers)

    assert (found["is_deterministic"], found["is_pure"]) == (True, False)
    assert dataset.file is None
    assert dataset.reads == []


def test_a_data_set_that_writes_is_told_from_another_process_that_writes_to_the_log(tmp_path):
    with (tmp_path / "log").open("w") as log:

        def write(image):
            print("line", file=log, flush=True)
            return image

        def wait_for_a_line(image):
            before = (tmp_path / "log").stat().st_size
            while (tmp_path / "log").stat().st_size == before:
                time.sleep(0.001)
            return image

        writes = probe(Transformed(write))
        words = "while echo line; do sleep 0.002; done"
        with subprocess.Popen(["sh", "-c", words], stdout=log) as other:
            shared = probe(Transformed(wait_for_a_line))
            other.kill()

    assert (writes["is_pure"], shared["is_pure"]) == (False, True)


def test_what_only_the_first_reading_does_is_no_effect_of_reading():
    seen = []

    def warn_once(image):
        if not seen:
            seen.append(os.write(2, b"this call will go away\n"))
        return image / 255

    found = probe(Transformed(warn_once))

    assert (found["is_deterministic"], found["is_pure"], seen) == (True, True, [])
    assert found["kept_bytes"] > 3 * 16 * 4
    assert found["saved_s"] > 0


@pytest.mark.parametrize("is_subset", [False, True])
def test_a_data_set_that_reads_batches_at_once_keeps_doing_so(is_subset):
    class AtOnce(Transformed):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    dataset = AtOnce(lambda image: image / 255)
    found = probe(data.Subset(dataset, range(20)) if is_subset else dataset)

    assert found["is_pure"]
    assert "kept_bytes" not in found


def test_what_is_kept_of_samples_that_draw_ends_before_the_draw():
    def slow(image):
        time.sleep(0.01)
        return image

    kept = probe(Transformed(Composed(slow, lambda image: image + torch.rand(()))))

    assert not kept["is_deterministic"]
    assert kept["kept_bytes"] > 3 * 16
    assert kept["saved_s"] > 0.005


class LooksUp(data.Dataset):
    """Rows in a list, whose parts are looked up in a dictionary; some note what was read there."""

    def __init__(self, *, notes=False):
        self.rows = [[1000 + number, float(number)] for number in range(60)]
        self.places = {row[0]: number for number, row in enumerate(self.rows)}
        self.notes = notes

    def __getitem__(self, index):
        name, value = self.rows[index]
        if self.notes:
            self.places[1000] += 1
        return [self.places[name], value]

    def __len__(self):
        return len(self.rows)


@pytest.mark.parametrize("notes", [False, True])
def test_a_dictionary_of_a_data_set_is_compared_in_a_part_of_it_too(notes):
    dataset = LooksUp(notes=notes)

    for one in (dataset, data.Subset(dataset, range(10, 40))):
        assert probe(one)["is_pure"] is not notes


def test_a_file_that_is_open_and_read_on_is_not_left_as_it_was(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(bytes(200))
    with path.open("rb", buffering=0) as file:
        found = probe(MayOpen(file, path))

        assert (found["is_pure"], file.tell()) == (False, 0)


@pytest.mark.parametrize(
    "make",
    [random.Random, torch.Generator, lambda: np.random.default_rng(0), np.random.RandomState],
)
@pytest.mark.parametrize(
    ("hold", "find"),
    [
        (lambda one: one, lambda held: held),
        (lambda one: [{"of": one}], lambda held: held[0]["of"]),
        (lambda one: SimpleNamespace(of=one), lambda held: held.of),
        (lambda one: lambda: one, lambda held: held()),
    ],
    ids=["itself", "containers", "attribute", "closure"],
)
def test_a_generator_is_found_where_it_is_held(make, hold, find):
    found = probe(Draws(hold(make()), find))

    assert (found["is_deterministic"], found["is_pure"]) == (True, False)


def test_transforms_are_seen_to_do_nothing_at_any_depth():
    chain = Chain([Chain([Chain([lambda image: image / 255])])])
    drawn = Chain([chain, lambda image: image.flip(-1) if torch.rand(()) < 0.5 else image])
    found, draws = probe(Transformed(chain)), probe(Transformed(drawn))

    assert (found["is_deterministic"], found["is_pure"]) == (True, True)
    assert (draws["is_deterministic"], draws["is_pure"]) == (False, False)


def test_plain_values_are_read_beside_workers_too():
    found = probe(Rows(), num_workers=2)

    assert (found["is_deterministic"], found["is_collate_deterministic"]) == (True, True)


def test_random_states_are_as_before():
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    probe(Noisy(), shuffle=True)

    assert (torch.rand(1), random.random()) == expected


def test_slow_samples_are_read_twice_and_no_more():
    dataset = Rows()
    seconds = iter(range(1000))
    loader = data.DataLoader(dataset, batch_size=4)
    read_twice(torch, loader, clock=lambda: float(next(seconds)))

    assert len(dataset.reads) == 1 + 4  # the first one may import something


def test_a_loader_is_described_without_reading(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision.transforms", raising=False)
    dataset = Rows()
    found = describe(dataset, num_workers=2, persistent_workers=True, shuffle=True)

    assert dataset.reads == []
    assert found == {
        "dataset": "Rows",
        "num_workers": 2,
        "batch_size": 4,
        "persistent_workers": True,
        "prefetch_factor": 2,
        "pin_memory": False,
        "is_iterable": False,
        "has_own_sampler": False,
        "num_samples": 40,
        "is_shuffled": True,
        "decodes_jpeg": None,
        "decodes_png": None,
        "prepared": "",
        "neighbor_sampling": "",
    }


def test_a_prepared_copy_beside_the_folder_of_a_data_set_is_found(tmp_path):
    rows = Rows()
    rows.root = str(tmp_path / "pics")
    assert describe(rows)["prepared"] == ""
    (tmp_path / "pics.prepared").mkdir()
    (tmp_path / "pics.prepared" / "index.json").touch()

    found = describe(data.Subset(rows, [1, 2]))

    assert found["prepared"] == str(tmp_path / "pics.prepared")


def test_rows_of_tensors_are_known_to_be_deterministic_with_workers_too():
    rows = data.Subset(data.TensorDataset(torch.zeros(10, 6), torch.zeros(10)), [1, 4, 5])
    found = describe(rows, num_workers=2)

    assert found["is_tensor_dataset"]
    assert found["is_deterministic"]
    assert found["is_collate_deterministic"]
    assert found["sample_bytes"] == 28
    assert (found["dataset"], found["num_samples"]) == ("TensorDataset", 3)


def test_a_collate_of_the_scripts_makes_rows_of_tensors_an_ordinary_data_set():
    found = describe(data.TensorDataset(torch.zeros(10, 6)), collate_fn=list)

    assert "is_tensor_dataset" not in found


def test_a_stream_is_told_as_such():
    assert describe(Stream())["is_iterable"]


def test_a_sampler_of_the_scripts_own_is_told():
    class Mine(data.Sampler):
        def __iter__(self):
            return iter(range(4))

        def __len__(self):
            return 4

    assert describe(Rows(), sampler=Mine())["has_own_sampler"]
    assert not describe(Rows(), sampler=data.SubsetRandomSampler([1, 2]))["has_own_sampler"]


class Pictures(Rows):
    """Decodes a file of one kind by Pillow."""

    def __init__(self, kind):
        super().__init__()
        image_module = pytest.importorskip("PIL.Image")
        self.file = io.BytesIO()
        image_module.new("RGB", (8, 8)).save(self.file, kind)
        self.open = image_module.open

    def __getitem__(self, index):
        self.file.seek(0)
        return torch.tensor(list(self.open(self.file).convert("L").tobytes()))


@pytest.mark.parametrize(("kind", "expected"), [("JPEG", True), ("PNG", False)])
def test_it_is_seen_whether_samples_are_decoded_from_jpeg_files(kind, expected):
    found = probe(Pictures(kind))

    assert found["decodes_jpeg"] is expected
    assert found["decodes_png"] is not expected


def test_a_list_of_jpeg_files_says_so_where_workers_read():
    rows = Rows()
    rows.samples = [("a/b.JPG", 0)]

    assert describe(rows, num_workers=2)["decodes_jpeg"] is True
    assert describe(rows, num_workers=2)["decodes_png"] is None
    rows.samples = [("a/b.png", 0)]
    assert describe(rows, num_workers=2)["decodes_png"] is True
    assert describe(Rows(), num_workers=2)["decodes_jpeg"] is None
