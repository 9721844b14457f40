"""What levers on several ranks are told, and where they are offered."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from steptime.guest.frameworks.torch.distributed import hook_fsdp
from steptime.guest.hooks.patching import put_back
from steptime.levers.base import ExchangeFacts, Facts, Preserves
from steptime.levers.examples import DEVICES, RANKS
from steptime.levers.ranks import ddp_bf16, ddp_no_sync, ddp_options, ddp_powersgd, nccl_settings

VIEW = {"gradient_as_bucket_view": True}
LEVERS = (ddp_options.LEVER, ddp_no_sync.LEVER, ddp_bf16.LEVER, ddp_powersgd.LEVER)


def make_facts(*, world_size=4, **exchange):
    base = {"gradient_bytes": 50 << 20, "gradient_dtypes": ("float32",), "backend": "gloo"}
    exchanges = (ExchangeFacts(**{**base, **exchange}),)
    return Facts(torch_version="2.9", world_size=world_size, exchanges=exchanges)


# -- where the levers are offered


@pytest.mark.parametrize("lever", LEVERS, ids=lambda lever: lever.name)
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(torch_version="2.9"), "not observed"),
        (Facts(torch_version="2.9", world_size=2, exchanges=()), "does not use Distributed"),
        (make_facts(world_size=1, exchanges_per_update=4), "one rank"),
    ],
)
def test_without_an_exchange_there_is_nothing_to_change(lever, facts, words):
    assert words in lever.applies(facts)


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        ({}, [VIEW, VIEW | {"bucket_cap_mb": 4}, VIEW | {"bucket_cap_mb": 100}]),
        ({"gradient_bytes": 1 << 20}, [VIEW]),
        ({"gradient_bytes": 1 << 20, "finds_unused": True, "can_be_static": True},
         [VIEW, VIEW | {"static_graph": True}]),
        ({"gradient_bytes": 1 << 20, "finds_unused": True, "can_be_static": False}, [VIEW]),
        ({"gradient_bytes": 1 << 20, "finds_unused": True}, [VIEW]),
        ({"gradient_bytes": 1 << 20, "has_bucket_view": True}, []),
    ],
)  # fmt: skip
def test_only_what_would_change_the_exchange_is_tried(exchange, expected):
    facts = make_facts(**exchange)

    assert list(ddp_options.LEVER.space(facts)) == expected
    assert (ddp_options.LEVER.applies(facts) is None) == bool(expected)


@pytest.mark.parametrize(
    ("world_size", "settings", "expected"),
    [
        (2, VIEW | {"bucket_cap_mb": 4}, Preserves.EXACT),
        (3, VIEW | {"bucket_cap_mb": 4}, None),
        (3, VIEW | {"static_graph": True}, None),
        (3, VIEW, Preserves.EXACT),
    ],
)
def test_other_buckets_are_exact_for_two_ranks_alone(world_size, settings, expected):
    facts = make_facts(world_size=world_size)

    assert ddp_options.LEVER.class_here(facts, settings) is expected


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ({}, "not known"),
        ({"exchanges_per_update": 1}, "once an update already"),
        ({"exchanges_per_update": 4, "has_hook": True}, "hook"),
        ({"exchanges_per_update": 4, "is_uneven": True}, "different numbers"),
    ],
)
def test_exchanges_are_put_off_where_all_updates_have_several_equally_many(exchange, words):
    assert words in ddp_no_sync.LEVER.applies(make_facts(**exchange))
    facts = make_facts(exchanges_per_update=4)
    assert ddp_no_sync.LEVER.applies(facts) is None
    assert ddp_no_sync.LEVER.space(facts) == ({"passes": 4},)


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ({"has_hook": True}, "hook"),
        ({"gradient_dtypes": ("bfloat16", "float32")}, "bfloat16"),
        ({"backend": "mpi"}, "mpi"),
        ({"backend": "gloo"}, "wait for ever"),
    ],
)
def test_bf16_is_for_float32_gradients_without_a_hook(exchange, words):
    assert ddp_bf16.LEVER.applies(make_facts(backend="nccl")) is None
    assert words in ddp_bf16.LEVER.applies(make_facts(**{"backend": "nccl", **exchange}))


def test_low_rank_products_are_for_nccl_and_begin_late():
    facts = make_facts(backend="nccl")

    assert [one["rank"] for one in ddp_powersgd.LEVER.space(facts)] == [4, 2, 1]
    assert ddp_powersgd.LEVER.applies(facts) is None
    assert "other orders" in ddp_powersgd.LEVER.applies(make_facts(backend="gloo"))
    assert "own way" in ddp_powersgd.LEVER.applies(make_facts(backend="nccl", has_hook=True))
    assert "scaler" in ddp_powersgd.LEVER.applies(dataclasses.replace(facts, uses_scaler=True))


# -- NCCL


def switches(**changes):
    facts = dataclasses.replace(DEVICES, **changes)
    return {settings["switch"] for settings in nccl_settings.LEVER.space(facts)}


def test_each_switch_has_its_condition():
    assert switches() == {"large_buffers", "low_latency", "queue_pairs"}
    assert switches(has_infiniband=False) == {"large_buffers", "low_latency", "sockets"}
    assert switches(num_nodes=1) == {"large_buffers", "low_latency", "few_channels"}
    assert switches(num_nodes=None, exchanges=None) == {"low_latency"}
    assert switches(num_nodes=None, exchanges=None, capabilities=("sm_86",)) == set()


def test_what_the_user_set_stays():
    assert "low_latency" not in switches(environment_names=("NCCL_PROTO",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu"}, "on cpu"),
        ({"world_size": 1}, "one rank"),
        ({"exchanges": RANKS.exchanges}, "NCCL"),
    ],
)
def test_without_nccl_there_is_nothing_to_set(changes, words):
    assert words in nccl_settings.LEVER.applies(dataclasses.replace(DEVICES, **changes))


# -- what the guest tells

torch = pytest.importorskip("torch")

from steptime.guest.trial.looks.exchange_book import ExchangeBook, count_nodes  # noqa: E402


class Ddp(torch.nn.Module):
    require_backward_grad_sync = True


def make_book(*rounds):
    """A book of updates, each with its calls that exchange and its backward calls."""
    book = ExchangeBook(torch)
    book.ddp_class = Ddp
    model = Ddp()
    for calls, backwards in rounds:
        for _ in range(calls):
            book.see_call(model)
        for _ in range(backwards):
            book.see_backward()
        book.end_update(is_open=True)
    return book


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([(4, 4), (4, 4)], 4),
        ([(1, 4), (1, 4)], 1),
        ([(1, 1)], 1),
        ([(4, 4), (2, 2)], None),
        ([(2, 1)], None),
        ([], None),
    ],
)
def test_exchanges_of_an_update_are_counted(rounds, expected):
    assert make_book(*rounds).exchanges_per_update == expected


def test_a_call_without_exchange_and_other_models_do_not_count():
    book = make_book()
    silent = Ddp()
    silent.require_backward_grad_sync = False
    for model in (silent, torch.nn.Linear(1, 1), torch.nn.Sequential(Ddp())):
        book.see_call(model)

    assert book.num_calls == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 2), ({"WORLD_SIZE": "16"}, None)],
)
def test_nodes_are_known_from_the_launcher(monkeypatch, environment, expected):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert count_nodes() == expected


# -- exchanges that FSDP2 makes


def test_backward_calls_of_fsdp2_exchange_gradients_where_the_script_says_so():
    class FSDPModule:
        def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
            return recurse

    recorder = SimpleNamespace(num_exchanges=None, num_backwards=3)
    context = SimpleNamespace(recorder=recorder, exchanges=False)
    context.guarded = lambda _, act, *args: act(*args)
    hook_fsdp(context, SimpleNamespace(FSDPModule=FSDPModule))
    try:
        model = FSDPModule()
        assert model.set_requires_gradient_sync(True) is True
        assert (context.exchanges, recorder.num_exchanges) == (True, 3)
        recorder.num_exchanges = 7
        assert (
            model.set_requires_gradient_sync(requires_gradient_sync=False, recurse=False) is False
        )
        assert (context.exchanges, recorder.num_exchanges) == (False, 7)
    finally:
        put_back()
    assert FSDPModule.set_requires_gradient_sync.__code__.co_filename == __file__


def test_a_torch_without_fsdp2_has_nothing_to_hook():
    hook_fsdp(SimpleNamespace(), SimpleNamespace())
