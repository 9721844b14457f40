"""Conversions: what is written, resumed, checked and refused."""

import errno
import json
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from steptime.data.convert import conversion as conversion_module
from steptime.data.convert.conversion import convert, partial_of
from steptime.data.convert.conversion_journal import ConversionJournal
from steptime.data.convert.planning import make_plan, take_sample
from steptime.data.convert.prepared_writer import PreparedWriter
from steptime.data.convert.treatment import Treatment
from steptime.data.prepared.prepared_source import open_prepared
from steptime.data.source import Column
from steptime.data.sources.opening import open_source
from steptime.errors import DataError, InterruptedByUserError, UsageError
from unit.data_lists import ListSource, make_mixed

KEPT = Treatment()
TESTS = Path(__file__).resolve().parent.parent


def make(source, *, treatment=KEPT, shard_bytes=600):
    sample = take_sample(source, treatment)
    return make_plan(source, "lists", treatment, sample, shard_bytes=shard_bytes)


class PowerCutError(BaseException):
    """Ends a conversion at once, as SIGKILL would."""


def cut_after(monkeypatch, num_shards):
    """Let a conversion end after some shards, in the middle of the next one."""
    write = PreparedWriter.write

    def limited(self, number, first, batches):
        if number >= num_shards:
            next(iter(batches))
            raise PowerCutError
        return write(self, number, first, batches)

    monkeypatch.setattr(PreparedWriter, "write", limited)


def interrupt(monkeypatch, source, target, plan):
    """Convert three shards, and a part of the fourth."""
    with monkeypatch.context() as patched:
        cut_after(patched, 3)
        with pytest.raises(PowerCutError):
            convert(source, target, plan, KEPT)


# --- resuming ---------------------------------------------------------------------------


def test_an_interrupted_conversion_goes_on_after_its_last_whole_shard(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"
    plan = make(source)
    interrupt(monkeypatch, source, target, plan)
    assert not target.exists()
    source.num_reads = 0

    done = convert(source, target, plan, KEPT)

    assert done.num_resumed == 3
    assert source.num_reads == 50 - 3 * plan.rows_per_shard
    assert not partial_of(target).exists()
    assert open_prepared(target).read(range(50))["data"] == source.values["data"]
    assert {path.name for path in target.iterdir()} & {"plan.json", "journal.jsonl"} == set()


def test_a_line_that_was_cut_off_counts_as_not_there(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"
    plan = make(source)
    interrupt(monkeypatch, source, target, plan)
    journal = partial_of(target) / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])

    assert convert(source, target, plan, KEPT).num_resumed == 2
    assert list(open_prepared(target).damage()) == []


def test_a_shard_that_was_damaged_since_is_written_again(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"
    plan = make(source)
    interrupt(monkeypatch, source, target, plan)
    with open(partial_of(target) / "00-pixels.npy", "r+b") as file:
        file.seek(128 + 5)
        file.write(b"\x01\x02\x03\x04")

    assert convert(source, target, plan, KEPT).num_resumed == 3
    assert list(open_prepared(target).damage()) == []
    assert np.array_equal(open_prepared(target).read([0])["pixels"][0], source.values["pixels"][0])


def test_what_was_begun_with_other_options_is_left_alone(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"
    interrupt(monkeypatch, source, target, make(source))
    other = make_mixed(51)

    with pytest.raises(DataError, match="other data, or with other options"):
        convert(other, target, make(other), KEPT)


def test_two_at_once_are_refused(tmp_path):
    source = make_mixed(5)
    plan = make(source)
    held = ConversionJournal(tmp_path / "out.partial", plan)

    with pytest.raises(DataError, match="another conversion"):
        convert(source, tmp_path / "out", plan, KEPT)
    held.close()


def test_nothing_is_written_over(tmp_path):
    source = make_mixed(5)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="there already"):
        convert(source, tmp_path / "out", make(source), KEPT)

    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "mine").touch()
    with pytest.raises(DataError, match="no unfinished conversion"):
        convert(source, tmp_path / "other", make(source), KEPT)
    assert (tmp_path / "other.partial" / "mine").exists()


CHILD = """
import os, sys
sys.path[:0] = [TESTS]
from pathlib import Path
from unit.data_lists import make_mixed
from unit.test_convert import KEPT, convert, make

source = make_mixed(50)
plan = make(source)
read = source.read

def blocking(rows):
    if rows[0] >= 2 * plan.rows_per_shard:
        journal = Path(TARGET + ".partial", "journal.jsonl")
        while journal.read_bytes().count(b"\\n") < 2:  # the second shard is being settled
            os.sched_yield()
        print("blocked", flush=True)
        sys.stdin.read()
    return read(rows)

source.read = blocking
convert(source, Path(TARGET), plan, KEPT)
"""


def test_a_killed_process_loses_no_settled_shard_and_writes_none_twice(tmp_path):
    source, target = make_mixed(50), tmp_path / "out"
    code = f"TESTS, TARGET = {str(TESTS)!r}, {str(target)!r}\n{CHILD}"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        assert child.stdout.readline() == b"blocked\n"
        os.killpg(child.pid, signal.SIGKILL)
    assert not target.exists()

    assert convert(source, target, make(source), KEPT).num_resumed == 2

    prepared = open_prepared(target)
    assert list(prepared.damage()) == []
    assert prepared.read(range(50))["data"] == source.values["data"]


# --- failing ----------------------------------------------------------------------------


def test_a_full_disk_is_a_sentence_and_leaves_nothing_under_the_name(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(conversion_module.os, "rename", full)
        with pytest.raises(DataError, match="is full") as error:
            convert(source, target, make(source), KEPT)

    assert "rm -r" in error.value.hint
    assert not target.exists()
    assert convert(source, target, make(source), KEPT).num_resumed > 3


def test_ctrl_c_says_what_stays_and_keeps_what_can_be_continued(tmp_path, monkeypatch):
    source, target = make_mixed(50), tmp_path / "out"
    monkeypatch.setitem(globals(), "PowerCutError", KeyboardInterrupt)
    for num_shards, stays in ((0, "Nothing of it stays"), (3, "3 finished shards stay in ")):
        with monkeypatch.context() as patched:
            cut_after(patched, num_shards)
            with pytest.raises(InterruptedByUserError) as error:
                convert(source, target, make(source), KEPT)
        assert error.value.hint.startswith(stays)
        assert partial_of(target).exists() == bool(num_shards)
    assert convert(source, target, make(source), KEPT).num_resumed == 3


def test_a_sample_that_cannot_be_read_is_named_and_the_rest_is_kept(tmp_path):
    source, target = make_mixed(50), tmp_path / "out"
    plan = make(source)
    source.damaged = {40}

    with pytest.raises(DataError, match="row 40"):
        convert(source, target, plan, KEPT)

    assert not target.exists()
    source.damaged = set()
    assert convert(source, target, plan, KEPT).num_resumed == 40 // plan.rows_per_shard


def test_what_reads_back_otherwise_is_not_given_the_name(tmp_path, monkeypatch):
    """The disk forgets what it was given."""
    source, target = make_mixed(50), tmp_path / "out"
    write = PreparedWriter.write

    def forgetful(self, number, first, batches):
        shard = write(self, number, first, batches)
        if number == 2:
            self._files["00-pixels.npy"].write(first, np.zeros((1, 4, 5), np.uint8))
        return shard

    monkeypatch.setattr(PreparedWriter, "write", forgetful)
    with pytest.raises(DataError, match="shard 2"):
        convert(source, target, make(source), KEPT)
    assert not target.exists()


def test_an_empty_source_is_refused():
    with pytest.raises(DataError, match="no samples"):
        take_sample(ListSource([Column("x", "text")], {"x": []}), KEPT)


def test_progress_tells_what_is_left(tmp_path):
    seen = []
    source = make_mixed(50)
    convert(source, tmp_path / "out", make(source), KEPT, show=seen.append)

    assert [one.phase for one in seen].index("check") > 0
    assert seen[-1].num_done == seen[-1].num_samples == 50
    assert seen[-1].left_s == 0


# --- from a folder ----------------------------------------------------------------------


def write_folder(folder, num=30):
    for index in range(num):
        path = folder / f"class{index % 3}" / f"{index:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([index]) * 40)
    return folder


def test_a_folder_is_listed_beside_its_copy_and_open_source_knows_the_copy(tmp_path):
    folder = write_folder(tmp_path / "files")
    source = open_source(folder)
    plan = make_plan(source, str(folder), KEPT, take_sample(source, KEPT))

    convert(source, tmp_path / "out", plan, KEPT)

    copy = open_source(tmp_path / "out")
    assert copy.columns[1].classes == ("class0", "class1", "class2")
    assert list(copy.read([4, 29])["data"]) == list(source.read([4, 29])["data"])
    lines = (tmp_path / "out" / "files.jsonl").read_text().splitlines()
    name, size, changed = json.loads(lines[4])
    status = (folder / name).stat()
    assert (size, changed) == (status.st_size, status.st_mtime_ns)
    assert source.place_of(4) == str(folder / name)
    assert json.loads((tmp_path / "out" / "index.json").read_text())["origin"]["files"]


def test_checksums_are_plain_crc32(tmp_path):
    """So that anybody can compare them."""
    folder = write_folder(tmp_path / "files", num=3)
    source = open_source(folder)
    plan = make_plan(source, str(folder), KEPT, take_sample(source, KEPT))
    convert(source, tmp_path / "out", plan, KEPT)

    found = np.load(tmp_path / "out" / "checksums.npy")
    values = source.read([0])
    data = (
        (40).to_bytes(8, "little")
        + values["data"][0]
        + int(values["label"][0]).to_bytes(8, "little")
    )
    assert found[0] == zlib.crc32(data)
    shard = json.loads((tmp_path / "out" / "index.json").read_text())["shards"][0]
    arrow = Path(tmp_path / "out" / shard["arrow"])
    assert shard["checksums"][shard["arrow"]] == f"{zlib.crc32(arrow.read_bytes()):08x}"
