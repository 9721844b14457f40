"""What levers are told of script and machine, from real torch objects."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from steptime.guest.hooks.patching import PATCHES
from steptime.guest.trial.lever_facts import FactsBook, count_graphs, cpu_capabilities
from steptime.guest.trial.lever_facts import describe_models as _describe_models
from steptime.guest.trial.lever_facts import describe_optimizer as _describe_optimizer

torch = pytest.importorskip("torch")


class Stack:
    owners: tuple[Any, ...] = ()
    is_acting = False
    was_used = False


@pytest.fixture
def book() -> Iterator[FactsBook]:
    num_before = len(PATCHES)
    failures: list[str] = []
    yield FactsBook(torch, Stack(), failures.append)  # type: ignore[arg-type]
    assert failures == []
    while len(PATCHES) > num_before:
        owner, name, before, _ = PATCHES.pop()
        setattr(owner, name, before)


def describe_models(*models: Any) -> dict[str, Any]:
    return _describe_models(torch, list(models))


def describe_optimizer(optimizer: Any) -> dict[str, Any]:
    return _describe_optimizer(torch, optimizer)


def test_layers_and_parameters_are_counted_once() -> None:
    conv = torch.nn.Conv2d(3, 4, 3)
    norm = torch.nn.BatchNorm2d(4).to(torch.bfloat16)
    found = describe_models(torch.nn.Sequential(conv, norm), torch.nn.Sequential(conv))

    assert found["has_convolution"]
    assert found["has_batch_statistics"]
    assert not found["is_channels_last"]
    assert found["num_parameters"] == 4 * 27 + 4 + 8
    assert found["parameter_dtypes"] == ["bfloat16", "float32"]


def test_convolutions_of_other_dimensions_are_no_images() -> None:
    found = describe_models(torch.nn.Conv1d(3, 4, 3), torch.nn.GroupNorm(2, 4))

    assert not found["has_convolution"]
    assert not found["has_batch_statistics"]


def test_blocks_that_a_model_repeats_are_counted(book: FactsBook) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
    deep = torch.nn.TransformerEncoder(layer, 5, enable_nested_tensor=False)

    assert book.describe([deep], [])["num_repeated_blocks"] == 5
    assert book.describe([torch.nn.Linear(2, 2)], [])["num_repeated_blocks"] == 0


def test_a_model_in_channels_last_is_seen(book: FactsBook) -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    assert describe_models(model)["is_channels_last"]

    image = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
    book.see_call(torch.nn.Conv2d(3, 4, 3), image)
    assert book.doings()["is_channels_last"]


def parameters(dtype: Any = None) -> list[Any]:
    return [torch.nn.Parameter(torch.zeros(4, 3, dtype=dtype))]


def test_optimizers_say_whether_they_could_be_fused() -> None:
    plain = describe_optimizer(torch.optim.AdamW(parameters()))
    assert (plain["name"], plain["is_fused"], plain["is_foreach"]) == ("AdamW", False, None)
    assert (plain["can_fuse"], plain["num_parameters"]) == (True, 12)

    fused = describe_optimizer(torch.optim.AdamW(parameters(), fused=True))
    assert fused["is_fused"]
    assert describe_optimizer(torch.optim.SGD(parameters(), foreach=False))["is_foreach"] is False


class OwnStep(torch.optim.AdamW):
    def step(self, closure: Any = None) -> Any:
        return None


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.RMSprop(parameters()),
        OwnStep(parameters()),
        torch.optim.Adam(parameters(torch.complex64)),
    ],
)
def test_what_torch_would_not_fuse_cannot_be_fused(optimizer: Any) -> None:
    assert not describe_optimizer(optimizer)["can_fuse"]


def begin(book: FactsBook, size: int) -> tuple[Any, Any]:
    """A loader, and its iterator with a batch on the way."""
    data = torch.utils.data
    loader = data.DataLoader(data.TensorDataset(torch.zeros(size, 2)), collate_fn=list)
    book.see_loader(loader)
    return loader, iter(loader)


def test_a_loader_counts_once_it_feeds_training(book: FactsBook) -> None:
    train, held_out = begin(book, 8), begin(book, 4)
    book.see_batch(held_out[1], None)
    book.drop_batch()
    book.see_batch(train[1], None)
    book.see_training()

    assert [loader["num_samples"] for loader in book.doings()["loaders"]] == [8]


def test_samples_are_read_only_where_that_is_asked(book: FactsBook) -> None:
    loader, iterator = begin(book, 8)
    book.see_batch(iterator, None)
    book.see_training()
    (found,) = book.doings()["loaders"]
    assert "is_deterministic" not in found

    book.is_probing = True
    (found,) = book.doings()["loaders"]
    assert found["is_deterministic"]
    assert found["num_samples"] == len(loader.dataset)


def test_a_loader_that_is_gone_keeps_its_facts(book: FactsBook) -> None:
    loader, iterator = begin(book, 8)
    book.is_probing = True
    book.see_batch(iterator, None)
    book.see_training()
    del loader
    (found,) = book.doings()["loaders"]

    assert found["num_samples"] == 8
    assert "is_deterministic" not in found


def test_autocast_and_threads_are_seen_where_the_script_sets_them(book: FactsBook) -> None:
    num_threads = torch.get_num_threads()
    book.hook_threads()
    book.hook_autocast()
    with torch.autocast("cpu", enabled=False):
        pass
    assert not book.doings()["uses_autocast"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.set_num_threads(num_threads)

    assert book.doings()["uses_autocast"]
    assert book.doings()["sets_threads"]


def test_what_a_lever_does_is_not_the_scripts_doing(book: FactsBook) -> None:
    book.hook_autocast()
    book.stack.is_acting = True
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pass

    assert not book.doings()["uses_autocast"]


def test_capabilities_come_from_the_machine_and_from_torch(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_tile sse2\nflags : avx999\n")
    found = cpu_capabilities(torch, str(path))

    assert {"avx512_bf16", "amx_tile"} <= set(found)
    assert not {"fpu", "avx999"} & set(found)
    assert torch.backends.cpu.get_cpu_capability().lower() in found
    assert cpu_capabilities(torch, str(tmp_path / "missing"))


def test_graphs_and_fallbacks_are_read_from_dynamos_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert count_graphs() == (0, 0)

    books = ModuleType("torch._dynamo.utils")
    books.counters = {  # type: ignore[attr-defined]
        "stats": Counter(unique_graphs=3),
        "unimplemented": Counter({"cache_size_limit reached": 2, "call to print": 5}),
        "graph_break": Counter({"Dynamo recompile limit exceeded\n  Explanation: …": 1}),
    }
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", books)
    assert count_graphs() == (3, 3)
