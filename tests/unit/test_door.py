"""What other people's files may be: regular, of a size, with numbers that can be."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from steptime.core.codec import decode, from_json, parse_document
from steptime.core.printable import printable
from steptime.core.ranges import MAX_DEPTH, OutOfRangeError, check_numbers
from steptime.errors import DamagedRunError
from steptime.record import lines as record_lines
from steptime.record.files import MAX_LINES_BYTES, MAX_RANK_BYTES, max_bytes_of
from steptime.record.lines import LineReader, Torn, read_lines
from steptime.record.numbers_told import rank_told, whole_number_in
from steptime.record.regular_file import open_regular, read_regular

GIB = 1 << 30

# -- what is opened


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a pipe"),
        (os.mkdir, "a folder"),
        (bind, "a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.symlink_to("/dev/tty"), "a device"),
    ],
)
def test_what_is_no_regular_file_is_refused_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    make(path := Path("measurement.json"))

    with pytest.raises(OSError, match=f"it is {kind}"):
        read_regular(path)


def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    (path := tmp_path / "a").symlink_to("/dev/zero")

    with patch.object(os, "open", side_effect=AssertionError), pytest.raises(OSError, match="dev"):
        read_regular(path)


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x")
    (path := tmp_path / "a").symlink_to("large")

    assert read_regular(path) == b"x"


def test_a_link_to_itself_and_a_path_with_a_zero_byte_are_errors_of_the_system(
    tmp_path: Path,
) -> None:
    (path := tmp_path / "a").symlink_to("a")

    for one in (path, Path("a\0b"), Path("a" * 4000)):
        with pytest.raises(OSError):  # noqa: PT011 - the words are the system's
            read_regular(one)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "b")


def test_a_file_above_its_limit_is_refused_with_both_sizes(tmp_path: Path) -> None:
    (path := tmp_path / "a").write_bytes(b"x" * 1001)

    with pytest.raises(OSError, match="it has 1,001 bytes, and Steptime reads at most 1,000"):
        open_regular(path, max_bytes=1000)
    assert len(read_regular(path, max_bytes=1001)) == 1001


def test_only_the_files_of_ranks_may_be_very_large() -> None:
    assert max_bytes_of("a/rank-0.jsonl") == MAX_RANK_BYTES
    assert max_bytes_of("a/host.jsonl") == max_bytes_of("rank-0/host.jsonl") == MAX_LINES_BYTES


# -- files of lines


def test_a_hole_is_passed_over_at_once(tmp_path: Path) -> None:
    with (path := tmp_path / "rank-0.jsonl").open("wb") as file:
        file.write(b'{"k": "a"}\n')
        file.seek(3 * GIB)
        file.write(b'cut\n{"k": "b"}\n')
    reader = LineReader(path, torn := Torn())

    assert list(reader.read()) == [{"k": "a"}, {"k": "b"}]
    assert torn.count == 1
    assert reader.num_bytes == path.stat().st_size


def test_a_file_of_other_lines_is_given_up(tmp_path: Path) -> None:
    (path := tmp_path / "host.jsonl").write_text("x\n" * 20)

    words = "more than 10 of its lines were not written by Steptime"
    with patch.object(record_lines, "MAX_FOREIGN_LINES", 10), pytest.raises(OSError, match=words):
        list(read_lines(path))


# -- numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("12", 12), ("007", 7), ("9" * 18, 10**18 - 1)]
    + [(text, None) for text in ("", "²", "١", "-1", "+1", " 1", "1_0", "1.0", "9" * 19, "nan")],
)
def test_a_number_in_a_text_has_ascii_digits_alone(text: str, number: int | None) -> None:
    assert whole_number_in(text) == number


def test_no_text_is_no_number() -> None:
    assert whole_number_in(None) is None


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, (None, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"RANK": "3"}, (3, 1)),
        ({"RANK": "3", "WORLD_SIZE": "²"}, (None, 1)),
        ({"RANK": "²", "WORLD_SIZE": "4"}, (None, 1)),
        ({"RANK": "1" * 5000, "WORLD_SIZE": "4"}, (None, 1)),
    ],
)
def test_variables_that_hold_no_number_tell_no_rank(
    variables: dict[str, str], told: tuple[int | None, int]
) -> None:
    assert rank_told(variables) == told


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    num_cores: int = 2
    started_unix_s: float = 1.0
    pid: int = 1
    total_s: float = 0.0
    bytes_per_s: float = 0.0
    flops: int = 0
    values: tuple[float, ...] = ()


@pytest.mark.parametrize(
    "text",
    [
        '{"num_cores": 0}',
        '{"num_cores": -1}',
        '{"started_unix_s": 1e12}',
        '{"started_unix_s": -1}',
        '{"pid": 99999999999}',
        '{"total_s": 1e12}',
        '{"flops": 1' + "0" * 101 + "}",
        '{"values": [1e101]}',
        '{"values": [1e999]}',
    ],
)
def test_a_number_that_its_name_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(DamagedRunError, match="Told"):
        decode(Told, text)


def test_large_numbers_that_can_be_are_taken() -> None:
    told = Told(num_cores=1024, started_unix_s=2e9, bytes_per_s=1e15, flops=10**24)

    assert from_json(Told, {"num_cores": 1024, "started_unix_s": 2e9} | {
        "bytes_per_s": 1e15, "flops": 10**24}) == told  # fmt: skip


def test_the_message_names_the_field_its_range_and_the_value() -> None:
    with pytest.raises(OutOfRangeError, match=r"`num_cores` must be between 1 and 1e.06, got 0"):
        check_numbers({"host": [{"num_cores": 0}]})
    with pytest.raises(OutOfRangeError, match=r"a number of a list .* got a whole number of more"):
        check_numbers([10**5000])


def test_data_in_data_without_an_end_are_refused() -> None:
    data: list[object] = []
    for _ in range(MAX_DEPTH):
        data = [data]

    with pytest.raises(OutOfRangeError, match="nested more than 100 levels deep"):
        check_numbers(data)
    check_numbers(data[0])


@pytest.mark.parametrize(
    "text", ["[]", "1", "{}", '{"schema": 2}', '{"schema": true}', "[" * 100_000, "{", "\xff"]
)
def test_what_is_no_document_of_ours_is_an_error_of_its_value(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the callers take each of them alike
        parse_document(text)


def test_a_document_may_be_taken_with_its_numbers_unchecked() -> None:
    text = '{"schema": 1, "num_cores": 0}'

    with pytest.raises(OutOfRangeError):
        parse_document(text)
    assert parse_document(text, checks_numbers=False)["num_cores"] == 0


# -- words and commands


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31m\udcff é") == "a\\x1b[31m\\udcff é"


def steptime(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steptime", *words],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["COLUMNS", "LINES", "WORLD_SIZE"])
def test_a_variable_that_holds_no_number_is_no_failure_of_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / ".steptime" / "runs").mkdir(parents=True)
    ended = steptime("list", "--store", str(tmp_path), **{name: "²", "RANK": "0"})

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no runs yet" in ended.stdout


def test_a_name_of_4000_characters_is_no_failure_of_ours(tmp_path: Path) -> None:
    for words in (
        ("show", "a" * 4000, "--store", str(tmp_path)),
        ("machine", "--inventory", "--data", "a" * 4000),
        ("run", "--recipe", "a" * 4000, "--", "true"),
    ):
        ended = steptime(*words)
        assert ended.returncode == 2
        assert "failure of Steptime" not in ended.stderr
