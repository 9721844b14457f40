"""The runs that are kept, one of each planted ailment, are diagnosed as what they are.

They come from true runs (`scripts/gen_run_folders.py`); `end_to_end/test_ailments.py` makes each
again, three of them in the fast check, and compares what it finds with what is found here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from end_to_end.ailments import AILMENTS, judge
from run_folders import AGAIN, ARCHIVE_OF_STUDY, KEPT_AILMENTS, diagnosis_of, path_of, unpack_run
from steptime.app.stored.load import load_run
from steptime.app.stored.report import write_page
from steptime.app.stored.run_listing import run_at
from steptime.core.schema import SCHEMA


@pytest.mark.parametrize("name", KEPT_AILMENTS)
def test_a_kept_run_is_diagnosed_as_its_ailment_at_its_line(tmp_path: Path, name: str) -> None:
    folder = unpack_run(name, tmp_path)
    for stream in folder.glob("rank-*.jsonl"):
        assert json.loads(stream.read_text().partition("\n")[0])["schema"] == SCHEMA, AGAIN

    judgement = judge(AILMENTS[name], diagnosis := diagnosis_of(folder))

    assert judgement.is_right, diagnosis
    assert judgement.is_line_right in (True, None), (judgement.found, AGAIN)


def test_what_is_kept_is_small_and_of_an_ailment_or_the_study() -> None:
    here = set(path_of("healthy").parent.iterdir())

    assert here == {ARCHIVE_OF_STUDY, *map(path_of, KEPT_AILMENTS)}
    assert sum(path.stat().st_size for path in here) < 512 << 10


@pytest.mark.parametrize("name", ["slow rank", "memory leak", "out of memory"])
def test_the_page_of_a_kept_run_is_drawn_and_says_what_was_found(tmp_path: Path, name: str) -> None:
    folder = unpack_run(name, tmp_path)

    page = write_page(load_run(run_at(folder))).read_text()

    for found in diagnosis_of(folder)["findings"]:
        if found["where"] is not None:
            assert found["where"].rpartition("/")[2] in page
    assert page.count('class="chart"') > 0
