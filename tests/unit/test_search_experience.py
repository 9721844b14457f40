"""What earlier studies change of a later one: its order, and never its proof."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from scripted_bench import ScriptedBench, label_of, labels_of, make_lever, make_levers
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.levers.base import Moment
from steptime.tune.search.bench import ProcessRequest
from steptime.tune.search.earlier_results import Experience, experience_of
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.study.earlier_studies import find_experience, make_family
from steptime.tune.study.study_folder import open_study
from steptime.tune.values.study_values import Applied, Study, StudyOutcome, TrialEnd
from study_cases import BF16, COMPILE, FUSED, WRONG, faster, trial

log = math.log
ONE, TWO = (Applied(name="workers", settings={"n": n}) for n in (1, 2))


def run(bench, *levers, **experience):
    options = SearchOptions(
        levers=levers, budget_s=bench.budget_s, experience=Experience(**experience)
    )
    return search(bench, options)


def test_of_each_lever_the_newest_study_says_what_it_did():
    bad = trial(1, FUSED, end=TrialEnd.FAILED)
    worse = trial(2, COMPILE, kind="quality", quality=WRONG)
    new = replace(faster(), study_id="new", recipe=(BF16,), trials=(trial(0, BF16), bad, worse))
    old = replace(faster(), study_id="old", recipe=(FUSED,), trials=(trial(0, FUSED),))

    found = experience_of([new, old])

    assert found.studies == ("new", "old")
    assert (found.helped, found.failed) == ((BF16,), (FUSED, COMPILE))


def test_a_setting_that_helped_is_compared_first_and_is_proven_again():
    workers = make_lever("workers", settings=({"n": 1}, {"n": 2}), moment=Moment.STARTUP)
    bench = ScriptedBench(gains={"workers:2": log(1.5), "other": log(1.2)})
    others = [make_lever(name, moment=Moment.STARTUP) for name in ("other", "idle")]
    found = run(bench, *others, workers, studies=("a",), helped=(TWO,))

    first = next(one for one in bench.requests if isinstance(one, ProcessRequest))
    assert labels_of(first.candidate) == {"workers:2", "other", "idle"}
    assert {label_of(one) for one in found.recipe} >= {"workers:2", "other"}
    assert [t.kind for t in found.trials if t.kind in ("quality", "confirm")] != []
    assert next(one for one in found.choices if one.code == "learned").facts["studies"] == 1


def test_what_is_no_longer_true_is_not_claimed():
    bench = ScriptedBench(gains={"lever_0": log(1.3)})
    stale = (Applied(name="lever_1", settings={}),)
    found = run(bench, *make_levers(2), studies=("a",), helped=stale)

    assert [label_of(one) for one in found.recipe] == ["lever_0"]


def test_what_failed_before_waits_until_nothing_else_is_proven():
    failed = (Applied(name="lever_1", settings={}),)
    both = {"lever_0": log(1.3), "lever_1": log(1.2)}
    found = run(ScriptedBench(gains=both), *make_levers(2), studies=("a",), failed=failed)

    assert [label_of(one) for one in found.recipe] == ["lever_0"]
    assert {one.name: one.reason for one in found.not_tried} == {"lever_1": "failed_before"}

    alone = ScriptedBench(gains={"lever_1": log(1.3)})
    found = run(alone, *make_levers(2), studies=("a",), failed=failed)
    assert [label_of(one) for one in found.recipe] == ["lever_1"]


# -- where it is kept

MACHINE = MachineIdentity(cpu="A CPU", num_cores=4)
CWD = Path("/home/me/project")


def family(*command, cwd=CWD, machine=MACHINE):
    return make_family(command, cwd=cwd, machine=machine)


def test_a_family_is_one_script_on_one_machine_with_any_options():
    own = family("python", "train.py", "--lr", "1")

    assert family("python3", "train.py", "--lr", "2") == own
    assert family("python", "other.py") != own
    assert family("python", "train.py", cwd=CWD / "b") != own
    assert family("python", "train.py", machine=replace(MACHINE, num_cores=8)) != own
    assert family("python", "-m", "pkg.train", "a") == family("python", "-m", "pkg.train", "b")


def ended(tmp_path: Path, family: str, study: Study):
    folder = open_study(tmp_path, study.study_id, budget_s=60.0, is_fresh=True, family=family)
    folder.save(replace(study, study_id=folder.study_id))
    return folder


def test_a_study_finds_those_of_its_family_and_keeps_what_it_knew(tmp_path: Path):
    first = ended(tmp_path, "f", replace(faster(), recipe=(BF16,), outcome=StudyOutcome.FASTER))
    ended(tmp_path, "g", replace(faster(), recipe=(FUSED,)))
    (first.folder.parent / "damaged").mkdir()
    (first.folder.parent / "damaged" / "study.json").write_text('{"schema": 1, "family": "f"')
    folder = open_study(tmp_path, "k", budget_s=60.0, is_fresh=True, family="f")

    found = find_experience(folder)

    assert found.studies == (first.study_id,)
    assert found.helped == (BF16,)
    ended(tmp_path, "f", replace(faster(), recipe=(FUSED,)))
    assert find_experience(folder) == found


def test_a_study_of_an_older_version_goes_on_without_experience(tmp_path: Path):
    ended(tmp_path, "f", faster())
    folder = open_study(tmp_path, "k", budget_s=60.0, is_fresh=True, family="f")

    assert find_experience(replace(folder, is_resumed=True)) == Experience()
