"""What people and programs read of the checks, and the command that shows them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from rich.console import Console

from documents import check_document, check_fits
from steptime.app.machine import check_machine
from steptime.cli.main import main
from steptime.machine.checks.run_checks import CHECKS, ROWS, judge
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import MachineSite
from steptime.report.blocks.machine.check_report import check_blocks, cost_text, seen_text
from steptime.report.document.json_schema import json_schema
from steptime.report.document.machine_documents import check_envelope
from steptime.report.text.paint_text import print_blocks
from steptime.report.words.machine.check_reasons import COST_OF, REASONS
from unit.check_cases import (
    GPU_STATE,
    HERE,
    limited,
    make_log,
    make_software,
    make_system,
    on_gpu,
    with_variable,
)
from unit.node_cases import CASES, FURTHER


def text_of(facts: CheckFacts, *, is_all: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100)
    print_blocks(check_blocks(judge(facts), facts.basis, is_all=is_all), console=console)
    return file.getvalue()


def ailing() -> CheckFacts:
    return with_variable(
        on_gpu(
            system=make_system(others_cores=7.0, huge_pages="never"),
            software=make_software(torch="2.3.0", num_threads=64),
            state=replace(GPU_STATE, persistence=False),
        ),
        CUDA_LAUNCH_BLOCKING="1",
    )


# -- words


def test_no_two_checks_have_one_code_and_all_words_are_said() -> None:
    assert len(ROWS) == len(CHECKS)
    for row in CHECKS:
        assert row.title
        assert row.seen
        assert row.why.endswith(".")


@pytest.mark.parametrize("code", CASES)
def test_what_was_seen_is_said_where_it_fires(code: str) -> None:
    found = next(one for one in judge(CASES[code].fires) if one.code == code)

    text = seen_text(found)

    assert text
    assert "{" not in text


@pytest.mark.parametrize("code", CASES)
def test_words_name_nothing_that_is_never_seen(code: str) -> None:
    """Over all planted machines each named quantity is seen at least once."""
    named = {name for part in ROWS[code].seen for _, name, _, _ in Formatter().parse(part) if name}
    facts = (CASES[code].fires, CASES[code].clean, *FURTHER.get(code, ()))
    seen = {
        name for one in facts for check in judge(one) if check.code == code for name in check.seen
    }

    assert named <= seen


def test_every_reason_has_words() -> None:
    facts = [facts for case in CASES.values() for facts in (case.fires, case.clean, case.without)]
    reasons = {check.reason for one in facts if one for check in judge(one) if check.reason}

    assert reasons <= set(REASONS)


@pytest.mark.parametrize("code", CASES)
def test_a_cost_has_a_source_or_is_said_to_be_unknown(code: str) -> None:
    found = next(one for one in judge(CASES[code].fires) if one.code == code)

    if found.cost is None:
        assert cost_text(found.cost) == "not known"
    elif found.cost.of == "failure":
        assert found.cost.high is None
    else:
        assert found.cost.source
        assert found.cost.of in COST_OF


# -- the screen


def test_the_most_costly_is_first_and_each_has_its_lines() -> None:
    lines = text_of(ailing()).splitlines()

    assert lines[0].startswith("critical   each launch waits for its kernel")
    assert lines[1] == "  seen     CUDA_LAUNCH_BLOCKING=1"
    assert lines[3] == "  cost     not known"
    assert lines[4] == "  mend     unset CUDA_LAUNCH_BLOCKING"
    assert lines[5] == "           by you · changes this shell and what it starts"
    assert lines[6].startswith("  sure     certain")
    assert any("a step: 3 to 8 times as long" in line for line in lines)


def test_remarks_are_one_paragraph_each_and_in_full_with_all() -> None:
    short, full = text_of(ailing()), text_of(ailing(), is_all=True)

    assert "remark     persistence mode is off (GPU 0)" in short
    assert "1 to 3 s more at the start of a run" not in short
    assert "1 to 3 s more at the start of a run" in full


def test_a_quiet_machine_is_one_line_and_all_lists_the_others() -> None:
    lines = text_of(HERE).splitlines()
    assert lines[0] == "asked      torch 2.13.0+cpu under /opt/env/bin/python · no run"
    assert lines[1].startswith("checks     0 of ")
    everything = text_of(HERE, is_all=True)

    assert "not here   no GPU of NVIDIA's: driver_missing" in everything
    assert "clean      shm_small: 32.0 GiB" in everything
    assert "unchecked  there is no run" in everything


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (MachineSite(scheduler="slurm", in_job=True), " · in a job of Slurm"),
        (MachineSite(scheduler="pbs"), " · a login node of PBS"),
        (MachineSite(scheduler="sge", serves_jobs=True), " · a node of Grid Engine"),
        (MachineSite(num_others=2), " · 2 other users"),
    ],
)
def test_whose_machine_it_is_taken_for_is_said(site: MachineSite, words: str) -> None:
    first = text_of(replace(HERE, site=site)).splitlines()[0]

    assert first == "asked      torch 2.13.0+cpu under /opt/env/bin/python · no run" + words


def test_who_runs_a_command_and_what_it_disrupts_is_said_below_it() -> None:
    facts = CASES["numa_balancing_on"].fires
    inside = replace(facts, inventory=replace(facts.inventory, limits=limited(container="docker")))

    for one, words in (
        (facts, "by whoever administers the machine · changes the machine for all its users"),
        (inside, "by whoever administers the machine · on the host of this container · changes"),
    ):
        lines = text_of(one).splitlines()
        at = lines.index("  mend     sudo sysctl kernel.numa_balancing=0")
        assert lines[at + 1].strip().startswith(words)


def test_a_remark_names_its_command_and_who_runs_it_or_its_advice() -> None:
    off = on_gpu(state=replace(GPU_STATE, persistence=False))

    assert "(by whoever administers the machine)" in " ".join(text_of(off).split())
    off = CASES["huge_pages_off"].fires
    assert "With `madvise` only programs" in " ".join(text_of(off).split())


def test_why_torch_could_not_be_asked_is_said() -> None:
    missing = {"software": "torch_does_not_load", "software_detail": "libgomp.so.1: not found"}
    text = text_of(replace(HERE, software=None, missing=missing))

    assert "asked      torch does not load in that Python (libgomp.so.1: not found)" in text


def test_what_nccl_chose_is_shown_wherever_its_log_was_read() -> None:
    text = text_of(replace(HERE, nccl_log=make_log(version="2.27.5")))

    assert "nccl       nccl.log · version 2.27.5 · 2 machines · network IB" in text
    assert "32 × P2P/CUMEM" in text
    assert "rings · trees" in text


def test_a_command_is_not_wrapped() -> None:
    found = next(c for c in judge(CASES["cpu_build_beside_gpu"].fires) if c.commands)

    assert found.commands[0].line in text_of(CASES["cpu_build_beside_gpu"].fires)


def test_control_characters_of_variables_do_no_harm() -> None:
    text = text_of(with_variable(HERE, TORCH_LOGS="\x1b[2Jdynamo"))

    assert "\x1b[2J" not in text


# -- the document


@pytest.mark.parametrize("facts", [HERE, ailing(), CASES["rdma_unused"].fires], ids=range(3))
def test_the_document_fits_its_schema(facts: CheckFacts) -> None:
    envelope = check_envelope(judge(facts), basis=facts.basis, exit_code=0)

    data = check_document(envelope, "doctor")["data"]

    assert {check["code"] for check in data["checks"]} == {row.code for row in CHECKS}
    assert data["words"].keys() == {row.code for row in CHECKS}


def test_what_fires_comes_first_with_its_figures_and_its_words() -> None:
    facts = ailing()

    data = check_document(check_envelope(judge(facts), basis=facts.basis, exit_code=0), "doctor")[
        "data"
    ]

    first = data["checks"][0]
    assert (first["code"], first["status"], first["severity"]) == (
        "launch_blocking",
        "fires",
        "critical",
    )
    assert first["commands"] == [
        {
            "line": "unset CUDA_LAUNCH_BLOCKING",
            "who": "user",
            "disrupts": "shell",
            "place": "here",
        }
    ]
    words = data["words"]["launch_blocking"]
    assert words["seen"] == "CUDA_LAUNCH_BLOCKING=1"
    assert (words["cost"], words["reason"]) == ("not known", None)
    assert data["basis"]["python"] == facts.basis.python


def test_the_schema_names_every_cost() -> None:
    said = json_schema("doctor")["$defs"]["Cost"]["properties"]["of"]["description"]

    assert all(f"`{word}`" in said for word in (*COST_OF, "failure"))


# -- the command


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plant(facts: CheckFacts) -> None:
        monkeypatch.setattr(check_machine, "gather_facts", lambda **_: facts)

    return plant


def test_what_fires_does_not_fail_the_command(
    plant: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(ailing())

    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("steptime doctor --all")


@pytest.mark.parametrize(
    ("code", "level", "exit_code"),
    [
        ("launch_blocking", "critical", 5),
        ("distributed_debug", "critical", 0),
        ("distributed_debug", "warning", 5),
        ("huge_pages_off", "warning", 0),
    ],
)
def test_a_gate_is_met_below_its_severity(
    plant: Any, capsys: pytest.CaptureFixture[str], code: str, level: str, exit_code: int
) -> None:
    plant(CASES[code].fires)

    assert main(["doctor", "--fail-on", level]) == exit_code
    assert (code in capsys.readouterr().err) == (exit_code == 5)


def test_a_gate_that_is_not_met_is_in_the_document(plant: Any, tmp_path: Path) -> None:
    plant(ailing())
    file = tmp_path / "checks.json"

    assert main(["doctor", "--fail-on", "critical", "--json", str(file)]) == 5
    document = json.loads(file.read_text())

    check_fits(document, "doctor")
    assert document["status"] == "partial"
    assert document["errors"][0]["code"] == "gate_not_met"
    assert document["data"]["checks"][0]["code"] == "launch_blocking"


@pytest.mark.parametrize(
    "words", [["machine", "--all"], ["machine", "--fail-on", "warning"], ["doctor", "--fresh"]]
)
def test_measuring_and_checking_have_options_of_their_own(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert f"there is no option `{words[1]}`" in capsys.readouterr().err


def test_a_log_or_python_that_is_not_there_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["doctor", "--nccl-log", str(tmp_path / "no.log")]) == 2
    assert "there is no file" in capsys.readouterr().err

    assert main(["doctor", "--python", "no-such-python"]) == 2
    assert "`no-such-python` was not found" in capsys.readouterr().err
