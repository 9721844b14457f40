"""Reads that wait for their value alone: the logic, with tensors of the CPU as if they were far."""

import io
import warnings

import pytest

from end_to_end.harness import has_gpu
from steptime.levers import deferred_reads
from steptime.levers._device_reads import MAX_NODES, DeviceReads
from steptime.levers._late_numbers import LateCopy
from steptime.levers.base import Facts
from steptime.testing.lever_session_double import PlainSession
from unit.counted_copies import CountedCopies

LEVER = deferred_reads.LEVER


@pytest.fixture
def device():
    return CountedCopies()


# --- where it applies -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "on the CPU a read waits for nothing"),
        ({"device": "mps"}, "not for mps"),
        ({"device": "cuda", "syncs_per_step": 0.0}, "reads no value"),
    ],
)
def test_it_is_not_offered_and_the_reason_is_said(fields, words):
    assert words in LEVER.applies(Facts(torch_version="2.13.0", **fields))


@pytest.mark.parametrize("fields", [{"syncs_per_step": 1.0}, {}, {"world_size": 2}])
def test_it_is_offered_on_a_device(fields):
    assert LEVER.applies(Facts(torch_version="2.13.0", device="cuda", **fields)) is None


# --- in a training ----------------------------------------------------------------------

SCRIPT = """
def train(torch, steps, kept, device="cpu"):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device=device)
    total = 0.0
    for step in range(steps):
        loss = model(x).square().mean()
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


def scaled(torch, steps, kept, device="cpu"):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device=device)
    sums = {"loss": 0.0, "n": 0}
    for step in range(steps):
        error = model(x).square().mean()
        size = model.weight.square().sum()
        loss = (error + 0.1 * size) / 2
        optimizer.zero_grad()
        (loss * 1024.0).backward()
        optimizer.step()
        last = error.item()
        sums["loss"] += loss.item() * len(x)
        sums["n"] += len(x)
        if step % 3 == 2:
            print(f"step {step} error {last:.9f} size {size.item():.9f}")
    print(sums["loss"] / sums["n"], last, file=kept)
"""


def compiled(tmp_path, name):
    """A function of the script, whose source is in a file; it returns what it keeps."""
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    names = {}
    exec(compile(SCRIPT, str(file), "exec"), names)
    torch = pytest.importorskip("torch")

    def run(steps=3, device="cpu"):
        kept = [] if name == "train" else io.StringIO()
        names[name](torch, steps, kept, device)
        return kept if name == "train" else kept.getvalue()

    return run


@pytest.fixture
def train(tmp_path):
    return compiled(tmp_path, "train")


@pytest.fixture
def scaled(tmp_path):
    return compiled(tmp_path, "scaled")


def with_reads(train, reads, steps=3):
    """What a script keeps while its reads are others."""
    torch = pytest.importorskip("torch")
    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads)
        try:
            return train(steps)
        finally:
            undo()


def reads_of(device, **others):
    """The reads of tensors of the CPU, as if they were on a device."""
    item = pytest.importorskip("torch").Tensor.item
    return DeviceReads(lambda tensor: device.copy(item(tensor)), lambda tensor: True, **others)


def test_what_a_script_reads_is_the_same_and_waits_for_copies_alone(train, device):
    torch = pytest.importorskip("torch")
    expected, item = train(), torch.Tensor.item

    found = with_reads(train, reads_of(device))

    assert found == expected
    assert [type(one) for one in found] == [type(one) for one in expected]
    # A step has four reads of one early copy; what was changed in place is read again.
    assert device.num_begun == 3
    assert device.num_waits == 3 * 4
    assert torch.Tensor.item is item
    assert train() == expected


def test_what_a_loss_is_made_of_is_copied_beside_its_backward(scaled, device, capsys):
    item = pytest.importorskip("torch").Tensor.item
    num_beside = 0

    def begin_beside(tensor, before):
        nonlocal num_beside
        num_beside += 1
        return device.copy(item(tensor))

    expected, printed = scaled(9), capsys.readouterr().out
    found = with_reads(scaled, reads_of(device, begin_beside=begin_beside), steps=9)

    assert found == expected
    assert capsys.readouterr().out == printed
    # Each step keeps an error and adds a loss, each third prints a size.
    assert num_beside == 9 + 9 + 3
    # The errors of three steps are printed, the last of them twice; nine losses are added once.
    assert device.num_waits == 4 + 3 + 9


def test_where_nothing_is_copied_beside_a_backward_only_what_is_needed_waits(
    scaled, device, capsys
):
    expected, printed = scaled(9), capsys.readouterr().out
    found = with_reads(scaled, reads_of(device), steps=9)

    assert found == expected
    assert capsys.readouterr().out == printed
    assert device.num_begun == 9 + 9 + 9  # what goes backward, kept errors, added losses
    assert device.num_waits == 4 + 9


def test_what_was_printed_before_a_device_fails_is_there(scaled, device, capsys):
    item = pytest.importorskip("torch").Tensor.item

    def begin(tensor):
        copy = device.copy(item(tensor))
        return copy if device.num_begun < 3 * 4 else LateCopy(fail, lambda: False)

    def fail():
        raise RuntimeError("the device failed")

    reads = DeviceReads(begin, lambda tensor: True)
    with pytest.raises(RuntimeError, match="the device failed"):
        with_reads(scaled, reads, steps=9)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "2"]]


def test_among_ranks_nothing_is_copied_before_its_backward(train, device):
    expected = train()
    found = with_reads(train, reads_of(device, has_ranks=lambda: True))

    assert found == expected
    assert device.num_begun == 3  # what is added to the sum
    assert device.num_waits == 3


@pytest.mark.parametrize(
    ("read", "keywords"),
    [
        (lambda loss: (loss * 2).item(), {}),  # it is computed behind the backward
        (lambda loss: loss.detach().item(), {}),  # it does not say what it was made by
        (lambda loss: loss.mul(1).item(), {}),
        (lambda loss: loss.item(), {"retain_graph": True}),  # what is kept would be kept for longer
        (lambda loss: loss.detach().mul_(2) and loss.item(), {}),  # it was changed
    ],
)
def test_all_else_is_read_behind_the_backward(device, read, keywords):
    torch = pytest.importorskip("torch")
    reads = reads_of(device, begin_beside=lambda tensor, before: pytest.fail("copied beside"))
    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads)
        loss = torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum()
        (loss / 2).backward(**keywords)
        read(loss)
        undo()

    assert (device.num_begun, device.num_waits) == (1, 0)


def test_a_loss_far_behind_many_operations_is_not_looked_for(device):
    torch = pytest.importorskip("torch")
    reads = reads_of(device, begin_beside=lambda tensor, before: pytest.fail("copied beside"))
    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads)
        last = first = torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum()
        for _ in range(MAX_NODES + 1):
            last = last * 1
        last.backward()
        first.item()
        undo()


def test_torch_warns_of_a_conversion_as_before(device):
    torch = pytest.importorskip("torch")
    loss = torch.ones((), requires_grad=True) * 3

    def convert():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [float(loss) for _ in range(3)] == [3.0] * 3
        return len(caught)

    with PlainSession(torch) as session:
        undo = deferred_reads.put_on(session, reads_of(device))
        convert()  # torch warns once a process
        loss.backward()
        before = device.num_waits
        assert convert() == 0
        assert device.num_waits == before + 3
        torch.set_warn_always(True)
        try:
            assert convert() in (0, 3)  # as torch's version has it
            assert device.num_waits == before + 3
        finally:
            torch.set_warn_always(False)
        undo()


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


# --- on a device ------------------------------------------------------------------------


def counted(train, device):
    """What a script keeps, and how often it made the host wait for the whole device."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            found = train(9, device)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return found, sum("synchronizing CUDA operation" in str(one.message) for one in caught)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device")
@pytest.mark.parametrize(("name", "num_gone"), [("train", 9 * 4), ("scaled", 9 + 9 + 3)])
def test_on_a_device_the_output_stays_and_the_waits_go(tmp_path, capsys, name, num_gone):
    torch = pytest.importorskip("torch")
    train = compiled(tmp_path, name)
    train(1, "cuda")  # libraries wait when they are loaded
    capsys.readouterr()
    expected, num_waits = counted(train, "cuda")
    printed = capsys.readouterr().out
    with PlainSession(torch) as session:
        undo = LEVER.apply({}, session)
        found, num_late_waits = counted(train, "cuda")
        undo()

    assert found == expected
    assert capsys.readouterr().out == printed
    assert num_waits - num_late_waits == num_gone  # all but what was changed in place


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device")
def test_on_a_device_what_a_loss_is_made_of_does_not_wait_for_what_follows():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 1, device="cuda")
    x = torch.ones(4, 8, device="cuda")
    with PlainSession(torch) as session:
        undo = LEVER.apply({}, session)
        for _ in range(2):  # the first time, memory is pinned
            loss = model(x).square().mean()
            (loss * 1024).backward()
            torch.cuda._sleep(1_000_000_000)
            done = torch.cuda.Event()
            done.record()
            number = loss.item()
            is_behind = done.query()
            torch.cuda.synchronize()
        undo()

    assert not is_behind
    assert number == loss.item()
