"""Lines of the record are read once each, whole, and only from regular files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.record import lines as record_lines
from steptime.record.lines import Line, LineReader, Torn, read_lines


def text_of(*rows: Line) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def numbered(*numbers: int) -> list[Line]:
    return [{"k": "x", "n": number} for number in numbers]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_what_was_appended_is_read_once(tmp_path: Path) -> None:
    reader = LineReader(path := tmp_path / "rank-0.jsonl")

    assert list(reader.read()) == []
    append(path, text_of(*numbered(0, 1)))
    assert list(reader.read()) == numbered(0, 1)
    append(path, text_of(*numbered(2)))
    assert list(reader.read()) == numbered(2)
    assert list(reader.read()) == []


def test_a_line_that_is_not_whole_yet_waits_for_its_end(tmp_path: Path) -> None:
    reader = LineReader(path := tmp_path / "rank-0.jsonl")
    whole = text_of(*numbered(7))
    append(path, whole[:5])

    assert list(reader.read()) == []
    append(path, whole[5:])
    assert list(reader.read()) == numbered(7)
    assert reader.torn.count == 0


def test_at_rest_the_last_line_may_lack_an_end(tmp_path: Path) -> None:
    append(path := tmp_path / "a", text_of(*numbered(0, 1)).rstrip("\n"))

    assert list(read_lines(path)) == numbered(0, 1)


def test_a_line_cut_short_at_the_end_is_counted(tmp_path: Path) -> None:
    append(path := tmp_path / "a", text_of(*numbered(0)) + '{"k": "x", "n"')

    assert list(read_lines(path, torn := Torn())) == numbered(0)
    assert torn.count == 1


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"n": 1}', '{"k": 1}', "\udcff", '{"k": "x"} {', "[" * 200_000]
)
def test_something_else_is_skipped_and_counted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a"
    content = text_of(*numbered(0)) + text + "\n" + text_of(*numbered(1))
    path.write_bytes(content.encode(errors="surrogateescape"))

    assert list(read_lines(path, torn := Torn())) == numbered(0, 1)
    assert torn.count == 1


def test_blank_lines_count_as_nothing(tmp_path: Path) -> None:
    append(path := tmp_path / "a", "\n \n" + text_of(*numbered(0)) + "\n\n")

    assert list(read_lines(path, torn := Torn())) == numbered(0)
    assert torn.count == 0


def test_kinds_that_nobody_wants_are_passed_over_unread(tmp_path: Path) -> None:
    text = '{"k":"u","rows":[[1]]}\n{"k": "u", "rows": [[}\n{"k": "up"}\n'
    append(path := tmp_path / "a", text)

    assert list(read_lines(path, torn := Torn(), without=("u",))) == [{"k": "up"}]
    assert torn.count == 0


def test_only_the_newest_are_read_where_much_was_appended(tmp_path: Path) -> None:
    reader = LineReader(path := tmp_path / "a", newest_bytes=64)
    append(path, text_of({"k": "head"}, *numbered(*range(100))))

    assert reader.read_head() == {"k": "head"}
    found = list(reader.read())
    assert found == numbered(*range(100 - len(found), 100))
    assert 0 < len(found) < 5
    append(path, text_of(*numbered(100)))
    assert list(reader.read()) == numbered(100)
    assert reader.torn.count == 0


def test_a_line_that_begins_where_the_newest_begin_is_whole(tmp_path: Path) -> None:
    line = text_of(*numbered(1))
    append(path := tmp_path / "a", line * 10)
    reader = LineReader(path, newest_bytes=3 * len(line))

    assert list(reader.read()) == numbered(1, 1, 1)


def test_of_an_endless_list_of_processes_both_ends_are_read(tmp_path: Path) -> None:
    rows = numbered(*range(1000))
    for name, is_whole in (("processes.jsonl", False), ("host.jsonl", True)):
        append(tmp_path / name, text_of(*rows))
        torn = Torn()
        with (
            patch.object(record_lines, "MAX_PROCESSES_BYTES", 4000),
            patch.object(record_lines, "CHUNK_BYTES", 500),
        ):
            found = list(read_lines(tmp_path / name, torn))
        if is_whole:
            assert (found, torn.count) == (rows, 0)
            continue
        assert (found[0], found[-1]) == (rows[0], rows[-1])
        assert torn.count == 1  # the line in which the first half ends
        gaps = [i for i, (a, b) in enumerate(pairwise(found)) if b["n"] != a["n"] + 1]
        assert len(gaps) == 1
        assert 3000 < len(text_of(*found)) <= 4500


def test_the_head_waits_until_it_is_whole(tmp_path: Path) -> None:
    reader = LineReader(path := tmp_path / "a")
    append(path, '{"k": "head"')

    assert reader.read_head() is None
    append(path, "}\n" + text_of(*numbered(0)))
    assert reader.read_head() == {"k": "head"}
    assert list(reader.read()) == numbered(0)


def test_a_line_without_an_end_is_not_held_without_an_end(tmp_path: Path) -> None:
    long = text_of({"k": "x", "text": "y" * 5000})
    append(path := tmp_path / "a", long + text_of(*numbered(0)))

    with patch.object(record_lines, "CHUNK_BYTES", 100):
        with patch.object(record_lines, "MAX_LINE_BYTES", 1000):
            assert list(read_lines(path, torn := Torn())) == numbered(0)
        assert torn.count == 1
        assert len(list(read_lines(path))) == 2


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(path := tmp_path / "rank-0.jsonl")

    with pytest.raises(OSError, match="regular files alone"):
        list(read_lines(path))


def test_a_file_that_was_made_shorter_is_no_failure(tmp_path: Path) -> None:
    reader = LineReader(path := tmp_path / "a")
    append(path, text_of(*numbered(0, 1)))
    assert len(list(reader.read())) == 2
    path.write_text("")

    assert list(reader.read()) == []


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["{}", '{"k": "x"}', "", "{", '{"k": "y", "n": 1}']), max_size=12),
    st.lists(st.integers(0, 200), max_size=6),
    st.integers(1, 40),
)
def test_any_cuts_of_a_file_give_the_lines_of_the_whole(
    texts: list[str], cuts: list[int], chunk: int
) -> None:
    content = "".join(text + "\n" for text in texts).encode()
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"record-lines-{os.getpid()}"
    path.unlink(missing_ok=True)
    reader, found = LineReader(path), []
    try:
        with patch.object(record_lines, "CHUNK_BYTES", chunk):
            begin = 0
            for cut in [*sorted(cuts), len(content)]:
                with path.open("ab") as file:
                    file.write(content[begin:cut])
                begin = max(begin, min(cut, len(content)))
                found += list(reader.read())
            assert found == list(read_lines(path, torn := Torn()))
        assert reader.torn.count == torn.count
    finally:
        path.unlink(missing_ok=True)


def put(path: Path, text: str, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(text.encode())


def replace_by_a_copy(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


@pytest.mark.parametrize(
    ("act", "was_changed"),
    [
        (lambda path: append(path, text_of(*numbered(9))), False),
        (lambda path: put(path, '{"k":"y"', at=0), True),
        (lambda path: os.truncate(path, path.stat().st_size - 3), True),
        (lambda path: path.unlink(), True),
        (replace_by_a_copy, True),
    ],
)
@pytest.mark.parametrize("newest_bytes", [None, 24])
def test_a_change_of_what_was_read_is_seen(
    act: Callable[[Path], object], *, was_changed: bool, newest_bytes: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "rank-0.jsonl"
    append(path, text_of(*numbered(0)))
    reader = LineReader(path, newest_bytes=newest_bytes, remembers=True)
    assert reader.read_head() == numbered(0)[0]
    append(path, text_of(*numbered(*range(1, 9))))
    list(reader.read())

    act(path)

    assert reader.was_changed() is was_changed


def test_a_file_that_was_never_there_was_not_changed(tmp_path: Path) -> None:
    assert not LineReader(tmp_path / "rank-0.jsonl", remembers=True).was_changed()
