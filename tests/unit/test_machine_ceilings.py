"""Ceilings as values: what a line becomes, what is kept, what is printed, and the document."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from documents import check_document
from steptime.app.machine import machine as machine_app
from steptime.cli.main import main
from steptime.core.codec import from_json, to_json
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.interval import Interval
from steptime.errors import NotFoundError, StoreError
from steptime.machine import ceilings
from steptime.machine.ceiling_state import is_contended, judge
from steptime.machine.ceilings import (
    CeilingRequest,
    Python,
    find_python,
    fingerprint_of,
    read_ceiling,
)
from steptime.machine.values.ceiling_values import (
    BenchProcess,
    Ceiling,
    Ceilings,
    Setting,
)
from steptime.machine.values.inventory_values import Gpu, Inventory, Link
from steptime.report.blocks.machine.machine_report import describe_told, live_told, machine_blocks
from steptime.report.document.machine_documents import machine_envelope
from steptime.report.text.paint_text import print_blocks
from unit.test_machine_report import make_gpu, make_inventory

MACHINE = MachineIdentity(hostname_hash="ab", cpu="Xeon Gold", num_cores=8, memory_bytes=1 << 34)
PYTHON = Python(path="/usr/bin/python3", version="3.11.7", torch_version="2.13.0")


def make_ceiling(**parts: Any) -> Ceiling:
    rate = Interval(estimate=1.34e12, low=1.31e12, high=1.36e12, n=40)
    given: dict[str, Any] = {
        "kind": "matmul",
        "device": "cpu",
        "dtype": "bf16",
        "unit": "flops_per_s",
        "rate": rate,
        "best_rate": 1.4e12,
        "setting": Setting(shape=(1024, 1024, 1024), layout="nn", num_threads=8),
        "others_cores": 0.02,
    }
    return Ceiling(**{**given, **parts})


def make_bench(**parts: Any) -> BenchProcess:
    given: dict[str, Any] = {
        "python": "/usr/bin/python3",
        "python_version": "3.11.7",
        "torch_version": "2.13.0",
        "num_threads": 8,
        "num_cores": 8,
        "wait_policy": "passive",
    }
    return BenchProcess(**{**given, **parts})


def make_ceilings(*found: Ceiling, **parts: Any) -> Ceilings:
    given: dict[str, Any] = {
        "fingerprint": "f" * 16,
        "measured_unix_s": 1_790_000_000.0,
        "took_s": 41.0,
        "budget_s": 50.0,
        "bench": make_bench(),
        "ceilings": found,
    }
    return Ceilings(**{**given, **parts})


def make_asked(folder: Path | None, **parts: Any) -> CeilingRequest:
    given: dict[str, Any] = {
        "python": PYTHON,
        "inventory": make_inventory(),
        "fingerprint": "f" * 16,
        "budget_s": 50.0,
        "folder": folder,
    }
    return CeilingRequest(**{**given, **parts})


def text_of(found: Ceilings | None, *, age_s: float = 0.0, **parts: Any) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100)
    print_blocks(machine_blocks(make_inventory(**parts), found, age_s=age_s), console=console)
    return file.getvalue()


# -- what a line becomes


def test_repetitions_become_a_median_with_its_interval() -> None:
    rates = [float(rate) for rate in (100, 104, 98, 101, 99, 103, 97, 102, 100, 101)]
    setting = {"shape": [2, 2, 2], "layout": "nn", "num_threads": 1}
    line = {"kind": "matmul", "device": "cpu", "unit": "flops_per_s", "dtype": "fp32"}
    points = [{"setting": setting, "rate": 100.0}]
    found = read_ceiling({**line, "rates": rates, "setting": setting, "points": points})

    assert found.rate is not None
    assert (found.rate.estimate, found.rate.n, found.best_rate) == (100.5, 10, 104.0)
    assert found.rate.low < 100.5 < found.rate.high
    assert found.points[0].setting == found.setting


def test_a_line_without_repetitions_has_no_rate_and_says_why() -> None:
    line = {"kind": "disk_random", "device": "disk", "unit": "reads_per_s"}

    assert read_ceiling({**line, "missing": "no_space"}).missing == "no_space"
    assert read_ceiling(line).missing == "no_repetitions"


@pytest.mark.parametrize(
    ("others", "num_cores", "expected"),
    [
        (None, 8, None),
        (0.05, 8, False),
        (1.5, 8, True),
        (50.0, 128, False),  # a container of eight cores on a large machine
    ],
)
def test_others_count_where_they_take_cores_that_were_wanted(
    others: float | None, num_cores: int, *, expected: bool | None
) -> None:
    found = is_contended(make_ceiling(others_cores=others), make_bench(num_cores=num_cores))

    assert found is expected


def test_ranks_want_a_core_each() -> None:
    one = make_ceiling(kind="all_reduce", setting=Setting(), num_ranks=2, others_cores=1.0)

    assert is_contended(one, make_bench(num_cores=2)) is True
    assert is_contended(one, make_bench(num_cores=4)) is False


# -- what is kept


def test_figures_are_taken_again_for_the_same_machine_and_budget(tmp_path: Path) -> None:
    found = judge(make_ceilings(make_ceiling()))
    ceilings.keep(found, make_asked(tmp_path))

    assert ceilings.load(make_asked(tmp_path)) == found
    assert ceilings.load(make_asked(tmp_path, budget_s=20.0)) == found


@pytest.mark.parametrize("asked", [{"fingerprint": "0" * 16}, {"budget_s": 180.0}])
def test_another_machine_or_more_time_is_measured_anew(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    ceilings.keep(make_ceilings(make_ceiling()), make_asked(tmp_path))

    assert ceilings.load(make_asked(tmp_path, **asked)) is None


@pytest.mark.parametrize(
    ("missing", "is_kept"), [("interrupted", False), ("bench_failed", False), ("out_of_time", True)]
)
def test_what_was_cut_short_is_taken_again_only_where_time_was_short(
    tmp_path: Path, missing: str, *, is_kept: bool
) -> None:
    found = make_ceilings(make_ceiling(), is_partial=True, missing=missing)
    ceilings.keep(found, make_asked(tmp_path))

    assert (ceilings.load(make_asked(tmp_path)) is not None) is is_kept


def test_a_damaged_file_is_measured_anew(tmp_path: Path) -> None:
    (tmp_path / f"{'f' * 16}.json").write_text("{")

    assert ceilings.load(make_asked(tmp_path)) is None
    assert ceilings.load(make_asked(None)) is None


def test_the_fingerprint_is_of_machine_devices_and_torch_and_not_of_the_moment() -> None:
    plain = make_inventory()
    gpu = Gpu(index=0, vendor="nvidia", has_driver=True, uuid="GPU-1")
    first = fingerprint_of(MACHINE, plain, PYTHON)

    assert first == fingerprint_of(
        MACHINE, replace(plain, ram=replace(plain.ram, available_bytes=5)), PYTHON
    )
    others = {
        fingerprint_of(replace(MACHINE, num_cores=4), plain, PYTHON),
        fingerprint_of(MACHINE, replace(plain, gpus=(gpu,)), PYTHON),
        fingerprint_of(MACHINE, plain, replace(PYTHON, torch_version="2.14.0")),
    }
    assert len(others | {first}) == 4
    # Started by a script of that name, it is the same interpreter.
    wrapped = replace(PYTHON, path="/opt/wrapper", executable=PYTHON.path)
    assert fingerprint_of(MACHINE, plain, wrapped) == first


def test_ceilings_survive_json() -> None:
    found = make_ceilings(make_ceiling(), make_ceiling(rate=None, missing="no_space"))

    assert from_json(Ceilings, json.loads(json.dumps(to_json(found)))) == found


# -- what people read


def test_a_row_has_its_median_interval_and_setting() -> None:
    row = next(
        line for line in text_of(make_ceilings(make_ceiling())).splitlines() if "bf16" in line
    )

    assert row.split() == [
        *("matmul", "bf16", "1.34", "TFLOPS", "1.31", "to", "1.36", "40", "1024³,", "8", "threads")
    ]


def test_an_interval_across_prefixes_has_both_units() -> None:
    rate = Interval(estimate=1.09e9, low=7.1e8, high=1.37e9, n=7)
    found = make_ceilings(make_ceiling(kind="copy", unit="bytes_per_s", rate=rate))

    assert "1.09 GB/s  710 MB/s to 1.37 GB/s" in text_of(found)


def test_a_busy_machine_gives_an_interval_to_the_fastest_and_says_so() -> None:
    text = text_of(judge(make_ceilings(make_ceiling(others_cores=1.5))))

    assert "1.31 to 1.40" in text
    said = " ".join(text.split())
    assert "provisional: matmul bf16 (measured while other programs ran)" in said
    assert "Others kept up to 1.5 of 8 cores busy" in said
    assert "takes them again" in said


def test_a_quiet_machine_has_no_warning() -> None:
    text = text_of(judge(make_ceilings(make_ceiling())))
    assert "busy" not in text
    assert "provisional" not in text


def test_where_nobody_could_look_for_others_that_is_said() -> None:
    text = text_of(make_ceilings(make_ceiling(others_cores=None)))

    assert "this system does not tell whether others kept the cores busy" in text


def test_a_known_gpu_has_its_share_of_the_datasheet_and_an_unknown_none() -> None:
    one = make_ceiling(device="cuda:0", rate=Interval(estimate=7.9e14, low=7.8e14, high=8e14, n=60))
    known = make_bench(device_names=("NVIDIA H100 80GB HBM3",))
    unknown = make_bench(device_names=("NVIDIA H1000",))

    assert "79.9 %" in text_of(make_ceilings(one, bench=known))
    assert "%" not in text_of(make_ceilings(one, bench=unknown)).partition("ceiling")[2].replace(
        "95 %", ""
    )


def test_what_was_not_measured_has_its_reason() -> None:
    text = text_of(
        make_ceilings(
            make_ceiling(), make_ceiling(dtype="int8", rate=None, missing="not_supported")
        )
    )

    assert "matmul int8: this torch has it not for this device" in text


def test_without_torch_the_inventory_stands_alone_with_what_to_do() -> None:
    found = make_ceilings(bench=None, missing="no_torch", detail="/usr/bin/python3")
    text = text_of(found)

    assert text.startswith("cpu ")
    assert "nothing was measured: no torch is installed for this Python" in text
    assert "steptime machine --python FILE" in " ".join(text.split())


def test_old_figures_say_how_old_they_are() -> None:
    assert "2 h 00 min ago" in text_of(make_ceilings(make_ceiling()), age_s=7200)


def test_progress_has_the_time_left() -> None:
    assert live_told("cpu", "matmul bf16", left_s=31.2) == "measuring matmul bf16 · 31.0 s left"
    assert live_told("cuda:1", "copy", left_s=5) == "measuring copy on cuda:1 · 5.00 s left"
    assert describe_told(make_ceiling()) == "matmul bf16: 1.34 TFLOPS"


# -- the document


def document(inventory: Inventory, found: Ceilings | None) -> dict[str, Any]:
    return check_document(machine_envelope(inventory, found), "machine")


@pytest.mark.parametrize(
    "found",
    [
        None,
        make_ceilings(make_ceiling()),
        make_ceilings(make_ceiling(rate=None, missing="no_space"), is_partial=True),
        make_ceilings(bench=None, missing="no_torch"),
    ],
)
def test_every_document_fits_the_schema_and_has_no_key_it_does_not_describe(
    found: Ceilings | None,
) -> None:
    gpu = Gpu(index=0, vendor="nvidia", has_driver=True)
    data = document(make_inventory(gpus=(gpu,), missing={"numa": "not_told"}), found)["data"]

    assert data["inventory"]["gpus"][0]["has_driver"] is True
    assert data["inventory"]["missing"] == {"numa": "not_told"}
    assert (data["ceilings"] is None) == (found is None)


def test_a_document_has_the_links_the_rates_and_what_was_not_measured() -> None:
    gpus = (make_gpu(0), make_gpu(1))
    links = (Link(first="GPU0", second="GPU1", kind="NV18"),)
    reduced = make_ceiling(
        kind="all_reduce",
        device="nccl",
        dtype="fp32",
        num_ranks=2,
        unit="bytes_per_s",
        rate=None,
        best_rate=None,
        setting=None,
        missing="out_of_time",
    )

    data = document(
        make_inventory(gpus=gpus, links=links, nvidia_driver="570", cuda_driver="12.8"),
        make_ceilings(make_ceiling(), make_ceiling(dtype="fp32"), reduced, is_partial=True),
    )["data"]

    assert data["inventory"]["links"] == [{"first": "GPU0", "second": "GPU1", "kind": "NV18"}]
    assert data["inventory"]["nvidia_driver"] == "570"
    first, _, last = data["ceilings"]["ceilings"]
    assert set(first["rate"]) == {"estimate", "low", "high", "n"}
    assert (last["num_ranks"], last["rate"], last["missing"]) == (2, None, "out_of_time")


def test_what_could_not_be_measured_makes_the_document_partial() -> None:
    found = document(make_inventory(), make_ceilings(bench=None, missing="no_torch"))
    stopped = document(make_inventory(), make_ceilings(missing="interrupted"))

    assert (found["status"], found["exit_code"]) == ("partial", 0)
    assert found["errors"][0]["code"] == "not_measured"
    assert (stopped["errors"][0]["code"], stopped["exit_code"]) == ("interrupted", 130)


# -- the command


def test_the_python_on_the_path_is_found_and_a_missing_one_is_a_message(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)

    assert find_python(None, {"PATH": str(tmp_path)}) == str(python)
    with pytest.raises(NotFoundError, match="--python: `nope` was not found"):
        find_python("nope", {"PATH": str(tmp_path)})
    with pytest.raises(NotFoundError, match="no `python` on the PATH"):
        find_python(None, {"PATH": str(tmp_path / "empty")})


def test_a_python_that_is_not_there_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", "--python", "nope", "--store", str(tmp_path)]) == 2
    assert "--python: `nope` was not found" in capsys.readouterr().err


def test_windows_is_refused_in_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")

    assert main(["machine"]) == 2
    assert "does not work on Windows" in capsys.readouterr().err


def test_a_budget_too_short_for_torch_to_start_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["machine", "--budget", "2s"]) == 2
    assert "--budget must be 5s or more" in capsys.readouterr().err


def test_what_was_measured_before_is_shown_without_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ceilings, "ask_python", lambda path, environment: PYTHON)
    monkeypatch.setattr(ceilings, "load", lambda asked: make_ceilings(make_ceiling()))

    assert main(["machine", "--store", str(tmp_path), "--data", str(tmp_path)]) == 0
    assert "matmul bf16" in capsys.readouterr().out


def test_a_store_that_cannot_be_written_costs_the_keeping_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def refuse(folder: Path, *, kind: str) -> Path:
        raise StoreError("No folder can be made: read-only.")

    monkeypatch.setattr(machine_app, "make_folder", refuse)

    assert machine_app._folder(tmp_path, said.append) is None
    assert said == ["No folder can be made: read-only. The figures are not kept."]
