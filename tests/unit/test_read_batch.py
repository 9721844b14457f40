"""A batch tells how much of it is padding, in whichever way it says so, or says nothing."""

from __future__ import annotations

import gc
import json
import weakref
from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import pytest

from steptime.guest.padding import batch_watch
from steptime.guest.padding.batch_watch import (
    EACH_UPDATE,
    MAX_COST_NS,
    MAX_HANDED,
    MAX_UNSEEN,
    BatchWatch,
)
from steptime.guest.padding.host_rows import MAX_BYTES, named_tensors
from steptime.guest.padding.read_batch import (
    BOUNDS,
    LABELS,
    MASK,
    PIXELS,
    RUNS,
    BatchLook,
    names_of,
    read_batch,
)
from steptime.guest.timeline.recorder import Recorder

torch = pytest.importorskip("torch")

LENGTHS, WIDTH, PAD = (5, 9, 3, 7), 12, 0


def make(lengths: tuple[int, ...] = LENGTHS, width: int = WIDTH, *, is_left: bool = False) -> Any:
    """Ids, mask and labels of rows with these lengths."""
    ids = torch.randint(5, 500, (len(lengths), width))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    mask = mask.flip(1) if is_left else mask
    ids[~mask] = PAD
    return ids, mask.long(), ids.masked_fill(~mask, -100)


def look(*args: Any, **kwargs: Any) -> BatchLook | None:
    return read_batch(named_tensors(torch, names_of(args, kwargs)))


def checked(found: BatchLook | None, seen_by: int) -> BatchLook:
    assert found is not None
    assert (found.seen_by, found.lengths) == (seen_by, LENGTHS)
    assert (found.num_rows, found.width) == (len(LENGTHS), WIDTH)
    assert (found.num_seen, found.num_needed) == (4 * WIDTH, 4 * max(LENGTHS))
    return found


# -- each way to tell


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.int32, torch.float32], ids=str)
def test_a_mask_is_believed(dtype: Any, *, is_left: bool) -> None:
    ids, mask, labels = make(is_left=is_left)
    found = checked(look(input_ids=ids, attention_mask=mask.to(dtype), labels=labels), MASK)
    assert found.num_trained == sum(LENGTHS)
    checked(look(ids, mask.to(dtype)), MASK)


def test_a_mask_of_padding_is_read_the_other_way() -> None:
    ids, mask, _ = make()
    checked(look(ids, src_key_padding_mask=mask == 0), MASK)
    checked(look(ids, padding_mask=mask), MASK)  # some scripts mark the tokens under this name
    found = look(ids.T, src_key_padding_mask=mask == 0)  # time first
    checked(found, MASK)


def test_a_mask_alone_tells_of_sounds() -> None:
    _, mask, _ = make()
    checked(look(input_values=torch.randn(4, WIDTH), attention_mask=mask), MASK)


def test_labels_say_what_no_mask_says() -> None:
    ids, _, labels = make()
    assert checked(look(ids, labels), LABELS).num_trained == sum(LENGTHS)


def test_labels_of_a_prompt_are_no_padding() -> None:
    ids, mask, labels = make()
    labels[:, :2] = -100
    found = checked(look(input_ids=ids, labels=labels), LABELS)
    assert found.num_trained == sum(LENGTHS) - 8
    assert checked(look(input_ids=ids, attention_mask=mask, labels=labels), MASK).num_trained == 16


@pytest.mark.parametrize("is_left", [False, True])
def test_the_run_of_a_token_says_it_last(*, is_left: bool) -> None:
    ids, _, _ = make(is_left=is_left)
    assert checked(look(ids), RUNS).token == PAD


def test_the_bounds_of_packed_sequences_are_their_lengths() -> None:
    ids = torch.randint(5, 500, (1, sum(LENGTHS)))
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0)
    for kwargs in (
        {"cu_seqlens": bounds.int()},
        {"position_ids": torch.cat([torch.arange(one) for one in LENGTHS])[None]},
    ):
        found = look(input_ids=ids, **kwargs)
        assert found is not None
        assert (found.seen_by, found.lengths, found.num_seen) == (BOUNDS, LENGTHS, sum(LENGTHS))
        assert found.num_needed == sum(LENGTHS)
    padded = look(input_ids=torch.cat([ids, ids.new_zeros(1, 6)], 1), cu_seqlens=bounds.int())
    assert padded is not None
    assert (padded.num_seen, padded.num_needed) == (sum(LENGTHS) + 6, sum(LENGTHS))


def test_a_mask_of_pixels_tells_of_images() -> None:
    mask = torch.zeros(2, 8, 10, dtype=torch.int64)
    mask[0, :6, :5] = 1
    mask[1, :4, :9] = 1
    found = look(pixel_values=torch.randn(2, 3, 8, 10), pixel_mask=mask)
    assert found is not None
    assert (found.seen_by, found.lengths) == (PIXELS, (30, 36))
    assert (found.num_seen, found.num_needed) == (160, 2 * 6 * 9)


def test_a_batch_is_found_in_whatever_holds_it() -> None:
    ids, mask, _ = make()
    Pair = namedtuple("Pair", ("input_ids", "attention_mask"))
    inside = UserDict({"input_ids": ids, "attention_mask": mask})
    for batch in (inside, {"inputs": inside}, [inside, 3], Pair(ids, mask), (ids, [mask])):
        checked(look(batch), MASK)


def test_a_row_that_is_part_of_a_longer_one_is_read_at_its_place() -> None:
    ids, mask, _ = make((6, 10, 4, 8), WIDTH + 1)
    checked(look(input_ids=ids[:, 1:], attention_mask=mask[:, 1:]), MASK)
    checked(look(ids[:, 1:]), RUNS)


# -- what tells nothing


def test_text_of_fixed_length_has_no_padding() -> None:
    # Of random text, one row in some hundred ends with a token twice.
    found = look(torch.arange(5, 5 + 4 * WIDTH).view(4, WIDTH))
    assert found is not None
    assert (found.seen_by, found.token, found.lengths) == (RUNS, -1, (WIDTH,) * 4)


@pytest.mark.parametrize(
    "args",
    [
        (torch.randn(4, 1, 28, 28), torch.randint(10, (4,))),
        (torch.randn(4, 12),),
        (torch.randint(5, (4,)),),
        (torch.zeros(0, 12, dtype=torch.int64),),
        (torch.zeros(3, 8, dtype=torch.int64).to_sparse(),),
        (torch.zeros(4, 12, dtype=torch.int64, device="meta"),),
        (None, "text", 3),
    ],
    ids=("images", "floats", "labels", "empty", "sparse", "elsewhere", "no tensor"),
)
def test_other_batches_tell_nothing(args: tuple[Any, ...]) -> None:
    assert look(*args) is None


def test_lines_that_end_rows_now_and_then_are_no_padding() -> None:
    ids = torch.randint(5, 60, (8, 64))
    ids[::3, -2:] = 10
    assert (ids[:, :-2] == 10).any()
    assert look(ids) is None


def test_zeros_beside_tokens_are_no_mask() -> None:
    ids, _, _ = make()
    checked(look(ids, torch.zeros_like(ids)), RUNS)
    checked(look(input_ids=ids, token_type_ids=torch.zeros_like(ids)), RUNS)


def test_of_a_large_batch_some_rows_are_read() -> None:
    mask = torch.ones(4000, 256, dtype=torch.int64)
    mask[:, 64:] = 0
    found = look(input_ids=torch.randint(5, 9, mask.shape), attention_mask=mask)
    assert found is not None
    assert found.num_bytes <= MAX_BYTES
    assert found.num_rows == 4000
    assert found.num_seen == 256 * len(range(0, 4000, 8))
    assert set(found.lengths) == {64}


# -- which batches are looked at


@pytest.fixture
def watch(tmp_path: Path) -> BatchWatch:
    return BatchWatch(torch, Recorder(str(tmp_path), lambda: {"rank": 0}))


def written(watch: BatchWatch) -> list[list[Any]]:
    text = watch.poll(0, is_last=True)
    assert watch.recorder.failures == {}
    return json.loads(text)["rows"] if text else []


def train(watch: BatchWatch, num: int, batch: Any, *, on_host: bool = True) -> None:
    """As the hooks do it: a loader hands over, a model is called."""
    for number in range(num):
        if number >= watch.due:
            watch.see_batch(batch)
        if number >= watch.due:
            ids = batch["input_ids"]
            moved = ids if on_host else ids.to("meta")
            watch.see_call((moved,), {}, number)


def test_looks_are_many_at_first_and_cost_little_later(watch: BatchWatch) -> None:
    ids, mask, _ = make()
    train(watch, 20_000, {"input_ids": ids, "attention_mask": mask})

    numbers = [row[0] for row in written(watch)]
    assert numbers[:EACH_UPDATE] == list(range(EACH_UPDATE))
    num_late = sum(number >= 2000 for number in numbers)
    assert num_late * 2 * batch_watch.NS_A_LOOK <= 18_000 * MAX_COST_NS
    assert num_late > 100


def test_a_batch_on_a_device_is_read_where_the_loader_hands_it_over(watch: BatchWatch) -> None:
    ids, mask, _ = make()
    train(watch, 3, {"input_ids": ids, "attention_mask": mask}, on_host=False)

    rows = written(watch)
    assert [row[:4] for row in rows] == [[n, MASK, 4, WIDTH] for n in range(3)]
    assert rows[0][-1] == list(LENGTHS)


def test_a_loader_that_is_a_batch_ahead_is_waited_for(watch: BatchWatch) -> None:
    (short, mask, _), (long, _, _) = make(), make((14,) * 4, 14)
    watch.see_batch({"input_ids": short, "attention_mask": mask})
    watch.see_call((long.to("meta"),), {}, 0)
    assert written(watch) == []
    watch.see_call((short.to("meta"),), {}, 1)
    assert [row[0] for row in written(watch)] == [1]


def test_what_the_model_is_called_with_counts_where_it_tells(watch: BatchWatch) -> None:
    ids, mask, _ = make()
    watch.see_batch({"input_ids": ids, "attention_mask": mask})
    watch.see_call((), {"input_ids": ids[:, :9], "attention_mask": mask[:, :9]}, 0)
    assert written(watch)[0][3] == 9
    assert not watch.needs_handed


def test_labels_of_the_loader_complete_the_ids_of_the_call(watch: BatchWatch) -> None:
    ids, _, labels = make()
    watch.see_batch((ids, labels))
    watch.see_call((ids,), {}, 0)
    assert written(watch)[0][1] == LABELS


def test_a_loader_whose_batches_no_model_is_called_with_is_left_alone(watch: BatchWatch) -> None:
    ids, mask, _ = make()
    for _ in range(MAX_HANDED):
        watch.see_batch({"input_ids": ids, "attention_mask": mask})
    assert watch.needs_handed
    watch.see_batch({"input_ids": ids, "attention_mask": mask})
    assert not watch.needs_handed


def test_images_are_soon_left_alone(watch: BatchWatch) -> None:
    image = torch.randn(2, 1, 4, 4)
    for number in range(MAX_UNSEEN):
        assert number >= watch.due
        watch.see_batch((image, torch.zeros(2)))
        watch.see_call((image,), {}, number)
    assert watch.due > 1000
    assert written(watch) == []


def test_no_batch_is_kept(watch: BatchWatch) -> None:
    ids, mask, _ = make()
    gone = [weakref.ref(ids), weakref.ref(mask)]
    batch = {"input_ids": ids, "attention_mask": mask}
    watch.see_batch(batch)
    watch.see_call((), batch, 0)
    del ids, mask, batch
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_modes_and_operators_see_nothing(watch: BatchWatch) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    ids, mask, labels = make()
    with Functions():
        watch.see_batch((ids, labels))
        watch.see_call((ids, mask), {}, 0)
    assert written(watch) == []
    with Operators():
        watch.see_batch((ids, labels))
        watch.see_call((ids, mask), {}, 0)
    assert len(written(watch)) == 1
    assert seen == []


def test_an_own_failure_ends_the_looks(watch: BatchWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensors: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(batch_watch.read_batch, "read_batch", fail)
    watch.see_call((torch.zeros(2, 4, dtype=torch.int64),), {}, 0)
    assert watch.recorder.failures == {"padding": 1}
    assert watch.due > 1 << 60
