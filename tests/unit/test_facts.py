"""What levers are told of script and machine, from real torch objects."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from steptime.guest.facts import FactsBook, count_graphs, cpu_capabilities, describe_loader
from steptime.guest.facts import describe_models as _describe_models
from steptime.guest.facts import describe_optimizer as _describe_optimizer
from steptime.guest.patch import PATCHES

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


def test_a_loader_is_described_by_its_iterator() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(10, 2))
    subset = torch.utils.data.Subset(data, range(8))
    loader = torch.utils.data.DataLoader(subset, batch_size=4, shuffle=True)
    found = describe_loader(torch, iter(loader))

    assert (found["dataset"], found["batch_size"], found["num_samples"]) == ("Subset", 4, 8)
    assert found["is_tensor_dataset"]
    assert not (found["is_iterable"] or found["has_own_sampler"] or found["num_workers"])


def test_an_own_sampler_or_collate_is_seen() -> None:
    class Own(torch.utils.data.Sampler):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter([0, 1])

    data = torch.utils.data.TensorDataset(torch.zeros(10, 2))
    own = torch.utils.data.DataLoader(data, sampler=Own(), collate_fn=lambda samples: samples)
    found = describe_loader(torch, iter(own))

    assert found["has_own_sampler"]
    assert not found["is_tensor_dataset"]


def test_a_stream_has_no_length() -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(range(4))

    found = describe_loader(torch, iter(torch.utils.data.DataLoader(Stream(), batch_size=None)))

    assert (found["is_iterable"], found["num_samples"], found["batch_size"]) == (True, None, None)


def test_a_loader_counts_once_it_feeds_training(book: FactsBook) -> None:
    def begin(size: int) -> Any:
        data = torch.utils.data.TensorDataset(torch.zeros(size, 2))
        return iter(torch.utils.data.DataLoader(data))

    train, held_out = begin(8), begin(4)
    book.see_batch(held_out)
    book.drop_batch()
    book.see_batch(train)
    book.see_training()

    assert [loader["num_samples"] for loader in book.doings()["loaders"]] == [8]


def test_a_probe_adds_what_it_found_and_is_asked_once(book: FactsBook) -> None:
    asked = []

    def probe(torch: Any, dataset: Any, collate: Any) -> dict[str, Any]:
        asked.append(type(dataset).__name__)
        return {"is_deterministic": True, "sample_bytes": 8}

    book.probe = probe
    data = torch.utils.data.TensorDataset(torch.zeros(8, 2))
    book.see_batch(iter(torch.utils.data.DataLoader(data)))
    book.see_training()
    for _ in range(2):
        (loader,) = book.doings()["loaders"]

    assert (loader["is_deterministic"], loader["sample_bytes"]) == (True, 8)
    assert asked == ["TensorDataset"]


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
