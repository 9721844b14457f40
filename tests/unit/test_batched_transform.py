"""`batched_transform`, and `whole_batch_fetch` on torchvision's arrays: batches are bit-equal."""

import random
from types import SimpleNamespace

import pytest

from steptime.levers import batched_transform, whole_batch_fetch
from steptime.levers._datasets import content_of
from steptime.levers.base import Facts, LoaderFacts
from unit.lever_switch import switching

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
torchvision = pytest.importorskip("torchvision_here").load_torchvision()
T, v2 = torchvision.transforms, pytest.importorskip("torchvision.transforms.v2")
cifar = pytest.importorskip("torchvision.datasets.cifar")
mnist = pytest.importorskip("torchvision.datasets.mnist")

SESSION = SimpleNamespace(torch=torch)
NUM = 48
MEAN, STD = (0.49, 0.48, 0.44), (0.2, 0.21, 0.22)


def array(num=NUM, shape=(12, 10, 3)):
    return np.random.default_rng(1).integers(0, 256, (num, *shape), dtype="uint8")


class Pictures(torch.utils.data.Dataset):
    """Its images go through a chain and out as they are."""

    def __init__(self, transform):
        self.transform, self.data = transform, array()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.data[index])), index % 3


class Named(Pictures):
    """Two views under names, beside a tensor of the data set's own."""

    def __getitem__(self, index):
        image = Image.fromarray(self.data[index])
        views = [self.transform(image), self.transform(image)]
        return {"views": views, "mean": torch.tensor(float(self.data[index].mean()))}


class Changed(Pictures):
    """It makes something else of the image."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image * 2, label


class Touched(Pictures):
    """It reads the image, draws, and gives the image on."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image, label + torch.rand(1) + float(image.mean())


class Asked(Pictures):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return (image if isinstance(image, torch.Tensor) else torch.zeros(1)), label


def v1_chain(*steps):
    return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD)])


def v2_chain(*steps):
    to_float = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.ToImage(), *steps, to_float, v2.Normalize(MEAN, STD)])


JITTER = (T.RandomCrop(8, padding=2), T.RandomHorizontalFlip())
JITTER_V2 = (v2.RandomCrop(8, padding=2), v2.RandomHorizontalFlip())
HELPED = {
    "to_tensor": lambda: Pictures(T.ToTensor()),
    "normalized": lambda: Pictures(v1_chain()),
    "random": lambda: Pictures(v1_chain(*JITTER)),
    "gray": lambda: Pictures(T.Compose([T.Grayscale(), T.ToTensor(), T.Normalize(0.5, 0.2)])),
    "cropped": lambda: Pictures(T.Compose([T.ToTensor(), T.CenterCrop(6), T.Resize(9)])),
    "bytes": lambda: Pictures(T.Compose([T.PILToTensor(), T.ConvertImageDtype(torch.float64)])),
    "v2": lambda: Pictures(v2_chain()),
    "v2_random": lambda: Pictures(v2_chain(*JITTER_V2)),
    "named": lambda: Named(v1_chain(*JITTER)),
    "subset": lambda: torch.utils.data.Subset(Pictures(v1_chain(*JITTER)), range(3, 40)),
    "asked": lambda: Asked(v1_chain()),
}
LEFT_ALONE = {
    "changed": lambda: Changed(v1_chain(*JITTER)),
    "touched": lambda: Touched(v1_chain(*JITTER)),
    "erased": lambda: Pictures(T.Compose([T.ToTensor(), T.RandomErasing(0.9)])),
    "own": lambda: Pictures(T.Compose([T.ToTensor(), lambda x: x + torch.rand(1)])),
    "no_chain": lambda: Pictures(lambda image: torch.tensor(np.array(image))),
}


@pytest.fixture
def joined(monkeypatch):
    """How many images each chain's end was applied to at once."""
    seen, chain_class = [], batched_transform.TransformChains.__init__.__globals__["TransformChain"]
    original = chain_class.apply_to
    monkeypatch.setattr(
        chain_class, "apply_to", lambda self, rows: seen.append(len(rows)) or original(self, rows)
    )
    return seen


def epochs(make, num_workers=0, num=2):
    """All batches with their dtypes and strides, and where the random states are then."""
    torch.manual_seed(0)
    random.seed(0)
    loader = torch.utils.data.DataLoader(make(), 8, shuffle=True, num_workers=num_workers)
    found = [content_of(batch) for _ in range(num) for batch in loader]
    return [*found, torch.rand(1).item(), random.random(), float(np.random.random())]


def both(lever, make, **arguments):
    np.random.seed(0)
    bare = epochs(make, **arguments)
    with switching(lever.LEVER, SESSION) as put_on:
        put_on()
        np.random.seed(0)
        return bare, epochs(make, **arguments)


@pytest.mark.parametrize("case", HELPED)
def test_the_end_of_a_chain_is_applied_to_batches_with_the_same_bits(joined, case):
    bare, changed = both(batched_transform, HELPED[case])

    assert changed == bare
    assert max(joined) == 8


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_a_data_set_with_other_plans_for_the_image_is_left_alone(joined, case):
    bare, changed = both(batched_transform, LEFT_ALONE[case])

    assert changed == bare
    assert len(joined) <= 3  # at most the batches that were compared


@pytest.mark.parametrize("lever", [batched_transform, whole_batch_fetch])
def test_workers_give_the_same_batches(lever):
    bare, changed = both(lever, lambda: Digits(T.ToTensor()), num_workers=2, num=1)

    assert changed == bare


def test_images_of_other_sizes_end_in_the_same_error():
    def make():
        rows = Pictures(T.ToTensor())
        rows.data = [*array(40), *array(8, (6, 6, 3))]
        return rows

    errors = []
    for is_on in (False, True):
        with switching(batched_transform.LEVER, SESSION) as put_on:
            if is_on:
                put_on()
            with pytest.raises(RuntimeError) as error:
                epochs(make)
            errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_a_chain_that_the_script_changes_is_the_new_one(joined):
    def make():
        rows = Pictures(v1_chain())
        rows.transform.transforms.append(T.CenterCrop(4))
        return rows

    rows = make()
    with switching(batched_transform.LEVER, SESSION) as put_on:
        put_on()
        loader = torch.utils.data.DataLoader(rows, 8)
        shapes = [next(iter(loader))[0].shape[2:]]
        rows.transform.transforms.pop()
        shapes.append(next(iter(loader))[0].shape[2:])
    assert shapes == [(4, 4), (12, 10)]


def test_taken_off_torchvision_has_its_own_methods():
    before = [T.Compose.__call__, T.ToTensor.__call__, v2.Compose.forward]
    with switching(batched_transform.LEVER, SESSION) as put_on:
        undo = put_on()
        epochs(HELPED["normalized"], num=1)
        assert T.Compose.__call__ is not before[0]
        undo()
        assert [T.Compose.__call__, T.ToTensor.__call__, v2.Compose.forward] == before


# -- whole batches out of torchvision's arrays


class Digits(mnist.FashionMNIST):
    """Without a download."""

    def __init__(self, transform, num=NUM):
        self.transform, self.target_transform = transform, None
        self.data = torch.from_numpy(array(num, (12, 10)))
        self.targets = torch.arange(num) % 10


class Colors(cifar.CIFAR10):
    def __init__(self, transform):
        self.transform, self.target_transform = transform, None
        self.data, self.targets = array(), [index % 10 for index in range(NUM)]


class OwnDigits(Digits):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image + 1, label


IN_MEMORY = {
    "digits": lambda: Digits(T.Compose([T.ToTensor(), T.Normalize(0.13, 0.3)])),
    "colors": lambda: Colors(T.Compose((T.ToTensor(), T.Normalize(MEAN, STD)))),
    "colors_v2": lambda: Colors(v2_chain()),
    "same_size": lambda: Colors(
        T.Compose([T.Resize((12, 10)), T.CenterCrop([12, 10]), T.ToTensor()])
    ),
    "subset": lambda: torch.utils.data.random_split(Digits(T.ToTensor()), [40, 8])[0],
}
NOT_WHOLE = {
    "random": lambda: Colors(v1_chain(*JITTER)),
    "own": lambda: OwnDigits(T.ToTensor()),
    "no_transform": lambda: Digits(lambda image: torch.tensor(np.array(image))),
    "other_size": lambda: Digits(T.Compose([T.Resize((12, 11)), T.ToTensor()])),
}


@pytest.mark.parametrize("case", IN_MEMORY)
def test_whole_batches_come_out_of_an_array_from_the_first_one_on(monkeypatch, case):
    reads = []
    getter = mnist.MNIST if case in ("digits", "subset") else cifar.CIFAR10
    bare, changed = both(whole_batch_fetch, IN_MEMORY[case])
    whole = whole_batch_fetch.find_whole(torch, IN_MEMORY[case]())
    monkeypatch.setattr(getter, "__getitem__", lambda *words: reads.append(words))
    batch = whole.__getitems__(list(range(8)))

    assert changed == bare
    assert len(batch[0]) == 8
    assert not reads


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_a_data_set_of_the_users_or_with_draws_is_no_array(case):
    assert whole_batch_fetch.find_whole(torch, NOT_WHOLE[case]()) is None
    bare, changed = both(whole_batch_fetch, NOT_WHOLE[case])
    assert changed == bare


def test_a_transform_set_in_mid_epoch_acts_at_once():
    rows = Digits(T.ToTensor())
    whole = whole_batch_fetch.find_whole(torch, rows)
    rows.transform = T.Compose([T.ToTensor(), T.CenterCrop(4)])

    assert whole.__getitems__([1, 2])[0].shape[2:] == (4, 4)


# -- where they are offered


def facts(**fields):
    return Facts(torch_version="2.13.0", loaders=(LoaderFacts(dataset="Images", **fields),))


def test_they_are_offered_by_what_the_loader_is():
    assert batched_transform.LEVER.applies(facts(num_batched_transforms=2)) is None
    assert batched_transform.LEVER.applies(facts()) is None
    assert "No transform" in batched_transform.LEVER.applies(facts(num_batched_transforms=0))
    assert "whole_batch_fetch" in batched_transform.LEVER.applies(facts(is_in_memory=True))
    assert whole_batch_fetch.LEVER.applies(facts(is_in_memory=True)) is None
