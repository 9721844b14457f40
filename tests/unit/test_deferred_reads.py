"""Reads that wait for their value alone: the logic, with tensors of the CPU as if they were far."""

import math
import pickle
import textwrap

import pytest

from steptime.levers import deferred_reads
from steptime.levers._device_reads import DeviceReads
from steptime.levers._late_numbers import MAX_WAITING, LateCopy, LateSum, LateTerm
from steptime.levers._summed_reads import is_only_summed
from steptime.levers.base import Facts
from steptime.testing.lever_session_double import PlainSession

LEVER = deferred_reads.LEVER


class Device:
    """Counts waits for copies; what is copied is there once `is_done`."""

    def __init__(self):
        self.num_begun = self.num_waits = 0
        self.is_done = False

    def copy(self, number):
        self.num_begun += 1

        def read():
            self.num_waits += not self.is_done
            return number

        return LateCopy(read, lambda: self.is_done)


@pytest.fixture
def device():
    return Device()


# --- where it applies -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "on the CPU a read waits for nothing"),
        ({"device": "mps"}, "not for mps"),
        ({"device": "cuda", "world_size": 2}, "reduced in place"),
        ({"device": "cuda", "syncs_per_step": 0.0}, "reads no value"),
    ],
)
def test_it_is_not_offered_and_the_reason_is_said(fields, words):
    assert words in LEVER.applies(Facts(torch_version="2.13.0", **fields))


@pytest.mark.parametrize("syncs", [1.0, None])
def test_it_is_offered_on_a_device(syncs):
    assert LEVER.applies(Facts(torch_version="2.13.0", device="cuda", syncs_per_step=syncs)) is None


# --- late numbers -----------------------------------------------------------------------

NUMBERS = (0.1, 0.7, 1e16, -0.3, 1 / 3)


def late_sum(device, numbers=NUMBERS, start=0):
    total = start
    for number in numbers:
        total += LateTerm(device.copy(number))
    return total


def test_a_sum_waits_for_nothing_until_it_is_printed(device):
    total = late_sum(device, start=0.0)

    assert type(total) is LateSum
    assert device.num_waits == 0
    expected = 0.0
    for number in NUMBERS:
        expected += number
    assert f"{total / 5:.17g} {total}" == f"{expected / 5:.17g} {expected}"
    assert device.num_waits == len(NUMBERS)
    assert type(total / 5) is float


def test_terms_that_have_arrived_are_added_at_once_and_only_so_many_wait(device):
    total = late_sum(device, range(MAX_WAITING + 3))
    assert device.num_waits == 3
    device.is_done = True
    total += LateTerm(device.copy(1))

    assert not total.terms
    assert total == sum(range(MAX_WAITING + 3)) + 1


def test_a_term_times_numbers_stays_late(device):
    total = 0.0
    total += LateTerm(device.copy(0.1)) * 32 * 0.5

    assert device.num_waits == 0
    assert float(total) == 0.1 * 32 * 0.5


def test_a_sum_is_added_to_in_the_order_of_the_script(device):
    total = late_sum(device, [1e16, 1.0], start=0.0)
    total += 1.0

    assert total == ((0.0 + 1e16) + 1.0) + 1.0
    assert type(total) is float


@pytest.mark.parametrize(
    "use",
    [
        *(str, repr, int, bool, abs, round, hash, math.floor, math.sqrt),
        lambda x: pickle.loads(pickle.dumps(x)),
        *(lambda x: -x, lambda x: x + 1, lambda x: 1 + x, lambda x: x - 1, lambda x: 1 - x),
        *(lambda x: x * 2, lambda x: 2 * x, lambda x: 1 / x, lambda x: x // 1, lambda x: x % 2),
        *(lambda x: x**2, lambda x: 2**x, lambda x: x < 3, lambda x: x <= 3, lambda x: x == 2.5),
        *(lambda x: f"{x:>9.3e}", lambda x: x.is_integer(), lambda x: x + x, "{:.2f}".format),
    ],
)
@pytest.mark.parametrize("start", [0, 0.25])
def test_all_else_gives_what_the_number_gives(device, use, start):
    number = start + 2.25
    found, expected = use(late_sum(device, [2.25], start)), use(number)

    assert found == expected
    assert type(found) is type(expected)


# --- which reads are only summed --------------------------------------------------------


def is_summed(tmp_path, body, line=None):
    """Whether the line of `+=` may be late, in a function that trains."""
    text = "def train(loader, n):\n    total = 0.0\n    for loss in loader:\n"
    text += textwrap.indent(body, "    ")
    lines = text.splitlines()
    file = tmp_path / f"train{abs(hash(text))}.py"
    file.write_text(text)
    at = next(i for i, one in enumerate(lines, 1) if "+=" in one) if line is None else line
    return is_only_summed(str(file), 1, "train", at)


@pytest.mark.parametrize(
    "body",
    [
        "    total += loss.item()\nprint(total)",
        "    total += loss.detach().item() * len(loss)\nreturn total / n",
        "    total += loss.item()\n    if n:\n        print(f'{total / n:.3f}')\n        total = 0",
        "    total += loss.item()\nprint('mean', round(100 * total, 2))",
        "    total += (loss > 0).sum().item()\nmean = total / n\nreturn mean",
        "    total += loss.item()\ntotal, k = 0.0, 0\nreturn total / 2",
    ],
)
def test_a_sum_that_is_only_computed_with_or_printed_may_be_late(tmp_path, body):
    assert is_summed(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "    total += loss.item()\nreturn total",
        "    total += loss.item()\n    losses.append(total)",
        "    total += loss.item()\n    log(loss=total)",
        "    total += n * loss.item()",
        "    total += loss.item() + n.item()",
        "    total += loss.item() * n.item()",
        "    total += loss.item()\n    total += loss",
        "    total += loss.item()\ntotal = loss",
        "    total += loss.item()\nother = total",
        "    total += loss.item()\nprint(loss * total)",
        "    total += loss.item()\nprint('%d' % total)",
        "    total += loss.item()\nprint(f(total))",
        "    total += loss.item(); n += loss.item()",
        "    total += loss.item()\nprint(locals())",
        "    total += loss.item()\nglobal total",
        "    total += loss.item()\nshow = lambda: total",
        "    total += loss.item()\nprint([total for _ in n])",
        "    total -= loss.item()\n    n += 1",
        "    n += loss.item()\nprint(n / 2)",
        "    self.total += loss.item()",
        "    total[0] += loss.item()",
        "    total += loss.item()\ndel total",
        "    total += loss.item()\nfor total in n:\n    pass",
        "    total += loss.item()\n(total := 3)",
        "    total += float(loss)",
    ],
)
def test_a_number_that_could_be_seen_by_others_is_read_at_once(tmp_path, body):
    assert not is_summed(tmp_path, body)


def test_a_script_without_functions_may_sum_too(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("total = 0\nfor x in y:\n    total += x.item()\nprint(total / 3)\n")

    assert is_only_summed(str(file), 1, "<module>", 3)
    file = tmp_path / "seen.py"
    file.write_text("total = 0\ntotal += x.item()\ndef f():\n    return total\n")
    assert not is_only_summed(str(file), 1, "<module>", 2)


def test_source_that_is_not_there_or_broken_is_no_reason_to_wait_less(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def train(:\n")

    assert not is_only_summed("<stdin>", 1, "train", 1)
    assert not is_only_summed(str(broken), 1, "train", 1)


# --- in a training ----------------------------------------------------------------------

SCRIPT = """
def train(torch, steps, kept):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for step in range(steps):
        loss = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(loss.item())
        total += loss.item()
        kept.append(loss.detach().tolist())
        kept.append(float(loss.detach()))
        loss.detach().mul_(2)
        kept.append(loss.item())
    kept.append(f"{total / steps:.9f}")
"""


@pytest.fixture
def train(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    names = {}
    exec(compile(SCRIPT, str(file), "exec"), names)
    torch = pytest.importorskip("torch")

    def run(steps=3):
        kept = []
        names["train"](torch, steps, kept)
        return kept

    return run


def test_what_a_script_reads_is_the_same_and_waits_for_copies_alone(train, device):
    torch = pytest.importorskip("torch")
    expected, item = train(), torch.Tensor.item
    reads = DeviceReads(lambda tensor: device.copy(item(tensor)), lambda tensor: True)

    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads)
        found = train()
        undo()

    assert found == expected
    assert [type(one) for one in found] == [type(one) for one in expected]
    # A step has four early reads and one late term; what was changed in place is read again.
    assert device.num_begun == 3 * 2
    assert device.num_waits == 3 * 4
    assert torch.Tensor.item is item
    assert train() == expected


def test_a_loss_is_forgotten_at_the_next_call_of_a_model(device):
    torch = pytest.importorskip("torch")
    item = torch.Tensor.item
    reads = DeviceReads(lambda tensor: device.copy(item(tensor)), lambda tensor: True)
    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads)
        model = torch.nn.Linear(1, 1)
        loss = model(torch.ones(1, 1)).sum()
        loss.backward()
        loss.item()
        model(torch.ones(1, 1))
        loss.item()
        undo()

    assert (device.num_begun, device.num_waits) == (1, 1)


def test_where_a_copy_cannot_be_begun_the_value_is_read_as_before(train):
    torch = pytest.importorskip("torch")
    expected = train()
    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, DeviceReads(lambda tensor: None, lambda tensor: True))
        found = train()
        undo()

    assert found == expected


def test_on_the_cpu_it_reads_as_before(train):
    torch = pytest.importorskip("torch")
    expected = train()
    with PlainSession(torch) as session:
        undo = LEVER.apply({}, session)
        found = train()
        undo()

    assert found == expected
