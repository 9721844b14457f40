"""`whole_batch_fetch` on torchvision's arrays: batches are bit-equal."""

import random
from types import SimpleNamespace

import pytest

from steptime.levers.input import whole_batch_fetch
from steptime.levers.input.datasets import content_of
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


def v1_chain(*steps):
    return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD)])


def v2_chain(*steps):
    to_float = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.ToImage(), *steps, to_float, v2.Normalize(MEAN, STD)])


JITTER = (T.RandomCrop(8, padding=2), T.RandomHorizontalFlip())


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
DRAWN = {
    "crops_and_flips": lambda: Colors(v1_chain(*JITTER)),
    "flips_before_crops": lambda: Colors(v1_chain(*reversed(JITTER))),
    "gray": lambda: Digits(
        T.Compose([T.RandomVerticalFlip(0.7), T.RandomCrop((9, 10), (0, 1), fill=7), T.ToTensor()])
    ),
    "no_room": lambda: Colors(v1_chain(T.RandomCrop((12, 10)), T.RandomHorizontalFlip())),
    "flips_v2": lambda: Colors(v2.Compose([v2.RandomHorizontalFlip(), *v2_chain().transforms])),
    "drawn_subset": lambda: torch.utils.data.random_split(Colors(v1_chain(*JITTER)), [40, 8])[0],
}
NOT_WHOLE = {
    "jitter": lambda: Colors(v1_chain(T.ColorJitter(0.4))),
    "mirrored_border": lambda: Colors(v1_chain(T.RandomCrop(8, 2, padding_mode="reflect"))),
    "padded_if_needed": lambda: Colors(v1_chain(T.RandomCrop(14, pad_if_needed=True))),
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


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("case", DRAWN)
def test_crops_and_flips_of_whole_batches_draw_as_those_of_each_image(case, num_workers):
    whole = whole_batch_fetch.find_whole(torch, DRAWN[case]())
    bare, changed = both(whole_batch_fetch, DRAWN[case], num_workers=num_workers)

    assert whole.draws or case == "no_room"
    assert changed == bare


def test_a_crop_that_is_set_otherwise_in_mid_epoch_acts_at_once():
    rows = Colors(v1_chain(*JITTER))
    whole = whole_batch_fetch.find_whole(torch, rows)
    rows.transform.transforms[0].size = (5, 4)

    assert whole.__getitems__([1, 2])[0].shape[2:] == (5, 4)


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


def test_workers_give_the_same_batches():
    bare, changed = both(whole_batch_fetch, IN_MEMORY["digits"], num_workers=2)

    assert changed == bare
