"""The contract of a lever as a class of tests; outside levers must keep it, just as ours do.

    import pytest
    from steptime.testing.levers import LeverContract

    class TestMyLever(LeverContract):
        @pytest.fixture
        def lever(self):
            return LEVER

What the lever does to a training is tested on a tiny one; without torch, those tests are skipped.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import json
import math
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import SkipTest

from steptime.diagnose.values.finding import BottleneckKind
from steptime.levers import file_of
from steptime.levers.base import Facts, Lever, Moment, Preserves, Settings
from steptime.levers.examples import CPU, UNSEEN, WORLDS
from steptime.levers.lever_evidence import evidence_of
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS
from steptime.testing.lever_session_double import PlainSession
from steptime.testing.training import Training

STRENGTH = (Preserves.NOTHING, Preserves.STATISTICAL, Preserves.NUMERIC, Preserves.EXACT)
OBSERVED = tuple(one.name for one in dataclasses.fields(Facts) if one.default is None)
"""What may not have been observed."""

CLOSE_ENOUGH = 64.0
"""How many roundoffs the losses of a few steps may differ by, with room to spare."""


def settings_of(lever: Lever) -> list[Settings]:
    """Return the settings that the lever has in one world or another, each once."""
    found = {json.dumps(dict(settings), sort_keys=True): settings for _, settings in cases(lever)}
    return list(found.values())


def cases(lever: Lever) -> list[tuple[Facts, Settings]]:
    """Return where the lever applies, and with what settings."""
    return [(f, s) for f in WORLDS if lever.applies(f) is None for s in lever.space(f)]


class LeverContract:
    """The tests that each lever must pass; a subclass gives the fixture `lever`."""

    # -- what it says

    def test_its_name_is_its_file(self, lever: Lever) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", lever.name)
        assert Path(file_of(lever)).stem == lever.name

    def test_it_says_what_it_does_in_sentences(self, lever: Lever) -> None:
        for text in (lever.title, lever.when, lever.costs):
            assert is_sentence(text), text

    def test_it_has_a_source(self, lever: Lever) -> None:
        module = sys.modules[lever.applies.__module__]
        assert lever.source.strip()
        assert "Source:" in (module.__doc__ or ""), "the docstring says whose idea it was"

    def test_its_evidence_is_figures_with_a_source(self, lever: Lever) -> None:
        for one in evidence_of(lever):
            assert re.fullmatch(r".*[^\s.]", one.training), one
            assert re.match(r"https://|docs/|benchmarks/results/", one.source), one
            assert not one.remark or is_sentence(one.remark), one
            assert (one.low is None) == (one.high is None), "a range has two ends"
            known = [x for x in (one.low, one.speedup, one.high) if x is not None]
            assert known or one.remark, "without a figure it says in words what it gave"
            assert known == sorted(known), one
            assert all(value > 0 for value in known), one

    def test_what_it_relieves_and_shortens_are_words_of_the_product(self, lever: Lever) -> None:
        assert lever.relieves
        assert lever.phases
        assert set(lever.relieves) <= {kind.value for kind in BottleneckKind}
        assert set(lever.phases) <= {*PHASES, *INNER_PHASES, *SPANS}

    def test_it_imports_the_standard_library_and_its_neighbors_alone(self, lever: Lever) -> None:
        tree = ast.parse(Path(file_of(lever)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert all(is_light(alias.name) for alias in node.names), ast.unparse(node)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert is_light(str(node.module)), ast.unparse(node)

    # -- where it applies

    def test_it_applies_somewhere(self, lever: Lever) -> None:
        assert cases(lever), "it applies in none of steptime.levers.examples.WORLDS"

    def test_it_applies_or_says_why_not_in_a_sentence(self, lever: Lever) -> None:
        for facts in WORLDS:
            reason = lever.applies(facts)
            assert reason is None or is_sentence(reason), reason

    def test_what_was_not_observed_is_no_reason_against_it(self, lever: Lever) -> None:
        """A reason says that something is not known, or holds whatever its value is.

        What device it is, is known: a lever for devices may refuse a CPU.
        """
        devices = {facts.device for facts in WORLDS}
        unseen = [dataclasses.replace(UNSEEN, device=device) for device in devices]
        assert any(claims_no_value(lever.applies(facts)) for facts in unseen)
        for facts, name, less in with_one_fact_less():
            reason = lever.applies(less)
            if not claims_no_value(reason):
                known = [getattr(world, name) for world in WORLDS]
                worlds = [with_fact(facts, name, value) for value in known if value is not None]
                assert all(lever.applies(world) is not None for world in worlds), (name, reason)

    def test_where_it_applies_there_is_something_to_try(self, lever: Lever) -> None:
        for facts in WORLDS:
            if lever.applies(facts) is None:
                space = [json.dumps(settings, sort_keys=True) for settings in lever.space(facts)]
                assert space
                assert len(set(space)) == len(space), "a setting stands in it twice"

    def test_settings_are_plain_and_survive_json(self, lever: Lever) -> None:
        for settings in settings_of(lever):
            assert all(type(value) in (str, int, float, bool) for value in settings.values())
            assert json.loads(json.dumps(dict(settings))) == dict(settings)

    def test_its_class_here_is_no_weaker_than_the_one_it_declares(self, lever: Lever) -> None:
        for facts, settings in cases(lever):
            here = lever.class_here(facts, settings) or lever.preserves
            assert STRENGTH.index(here) >= STRENGTH.index(lever.preserves)

    def test_its_roundoff_is_that_of_some_arithmetic(self, lever: Lever) -> None:
        for settings in settings_of(lever):
            assert 2.0**-53 <= lever.roundoff(settings) <= 2.0**-2

    def test_its_edit_is_there_for_each_setting(self, lever: Lever) -> None:
        for settings in settings_of(lever):
            assert lever.edit(settings).strip()

    # -- what it does

    def test_it_acts_at_its_moment(self, lever: Lever) -> None:
        if lever.moment is not Moment.ENVIRONMENT:
            assert lever.apply is not None
            return
        assert lever.variables is not None
        for facts, settings in cases(lever):
            variables = lever.variables(settings, facts.libraries)
            assert variables
            assert all(type(text) is str for pair in variables.items() for text in pair)

    def test_put_on_and_taken_off_it_leaves_every_bit(self, lever: Lever) -> None:
        torch = torch_for(lever)
        for settings in lever.space(CPU):
            expected = Training(torch).steps(6)
            with PlainSession(torch) as session:
                training = Training(torch)
                losses = training.steps(2)
                for _ in range(2):
                    apply(lever, settings, session)()
                assert losses + training.steps(4) == expected, settings

    def test_taken_off_it_leaves_nothing_behind(self, lever: Lever) -> None:
        torch = torch_for(lever)
        for settings in lever.space(CPU):
            with PlainSession(torch) as session:
                training, before = Training(torch), global_settings(torch)
                training.steps(2)
                undo = apply(lever, settings, session)
                training.steps(3)
                undo()
                fresh = training.loaded_into_a_new_one()
                assert global_settings(torch) == before
                assert training.form() == Training(torch).form(), settings
                assert training.steps(3) == fresh.steps(3), settings

    def test_with_it_the_training_is_close(self, lever: Lever) -> None:
        torch = torch_for(lever)
        for facts, settings in ((CPU, settings) for settings in lever.space(CPU)):
            expected = Training(torch).steps(4)
            with PlainSession(torch) as session:
                undo = apply(lever, settings, session)
                losses = Training(torch).steps(4)
                undo()
            if (lever.class_here(facts, settings) or lever.preserves) is Preserves.EXACT:
                assert losses == expected
            for one, other in zip(losses, expected, strict=True):
                allowed = CLOSE_ENOUGH * lever.roundoff(settings)
                assert math.isclose(one, other, rel_tol=allowed), settings

    def test_a_checkpoint_written_while_it_is_on_needs_nothing_of_ours(
        self, lever: Lever, tmp_path: Path
    ) -> None:
        torch = torch_for(lever)
        for settings in lever.space(CPU):
            with PlainSession(torch) as session:
                training = Training(torch)
                undo = apply(lever, settings, session)
                training.steps(2)
                torch.save((training.model, training.optimizer), tmp_path / "all.pt")
                undo()
            assert b"steptime" not in (tmp_path / "all.pt").read_bytes()
            torch.load(tmp_path / "all.pt", weights_only=False)


@cache
def with_one_fact_less() -> tuple[tuple[Facts, str, Facts], ...]:
    """Return each world, what may not have been observed, and the world without that."""
    return tuple(
        (facts, name, with_fact(facts, name, None)) for facts in WORLDS for name in OBSERVED
    )


def with_fact(facts: Facts, name: str, value: Any) -> Facts:
    """Return the same machine and script with another value of one fact."""
    changed: dict[str, Any] = {name: value}
    return dataclasses.replace(facts, **changed)


def claims_no_value(reason: str | None) -> bool:
    """Return whether there is no reason, or it says that something was not observed."""
    return reason is None or "not observed" in reason or "not known" in reason


def is_sentence(text: str) -> bool:
    """Return whether the text begins and ends as a sentence does, on one line."""
    return bool(re.fullmatch(r"[A-Z0-9].*[^\s.]\.", text))


def is_light(name: str) -> bool:
    """Return whether a lever may import the module: the guest knows no others."""
    return name.split(".")[0] in sys.stdlib_module_names or name == "steptime.levers.base"


def torch_for(lever: Lever) -> Any:
    """Return torch, for a test of what a live lever does.

    Raises:
        SkipTest: the lever is not live, does nothing on a CPU, or there is no torch.
    """
    if lever.moment is not Moment.LIVE:
        raise SkipTest("it is not live")
    if lever.applies(CPU) is not None:
        raise SkipTest("it does not apply to the tiny training on a CPU")
    try:
        return import_module("torch")
    except (ImportError, RuntimeError) as error:
        raise SkipTest(f"there is no torch: {error}") from error


def apply(lever: Lever, settings: Settings, session: PlainSession) -> Any:
    """Apply a live lever; return what undoes it."""
    assert lever.apply is not None
    undo = lever.apply(settings, session)
    assert callable(undo), "`apply` of a live lever returns its way back"
    return undo


def global_settings(torch: Any) -> dict[str, Any]:
    """Return the switches of torch that a lever may turn and must turn back."""
    matmuls = (torch.backends.mkldnn, torch.backends.cuda)
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "operators": [getattr(getattr(o, "matmul", 0), "fp32_precision", None) for o in matmuls],
        "tf32": torch.backends.cudnn.allow_tf32,
        "benchmark": torch.backends.cudnn.benchmark,
        "num_threads": torch.get_num_threads(),
        "default_dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "gradients": torch.is_grad_enabled(),
        "anomalies": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "collects": (gc.isenabled(), gc.get_freeze_count()),
    }
