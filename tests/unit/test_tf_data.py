"""tf.data's own statistics, as TensorFlow 2.21 gave them, and a double of its classes.

The recorded lines are of short trainings with Keras 3.15 on two cores that others used, too: one
pipeline each, with a known slowest stage.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.data.tf_advice import advise, least_step, part_times
from steptime.data.tf_data import read_tf_data
from steptime.data.tf_stages import kind_of, method_of
from steptime.data.values.tf_data_values import AUTOTUNE, TfStage
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.tfdata import install
from steptime.guest.tfdata.model_reads import ModelReads
from steptime.guest.tfdata.pipeline_calls import PipelineCalls
from steptime.record.loaders.tf_data_lines import has_enough
from steptime.report.blocks.data.tf_data_report import tf_data_blocks
from steptime.report.text.paint_text import paint
from told_blocks import unwrapped_page

RECORDED = Path(__file__).parent / "tf_data_lines"


def lines_of(found, *, cwd):
    return [line.plain for line in paint(tf_data_blocks(found, cwd=cwd), unwrapped_page())]


def recorded(name, tmp_path):
    (tmp_path / "tfdata-7.jsonl").write_text((RECORDED / f"{name}.jsonl").read_text())
    return read_tf_data(tmp_path, num_cores=2)


@pytest.mark.parametrize(
    ("name", "slowest", "line"),
    [
        ("map", "map", 16),
        ("fixed", "map", 18),
        ("generator", "from_generator", 19),
        ("inter", "interleave", 32),
        ("tiny", "map", 21),
    ],
)
def test_the_slowest_stage_is_named_with_its_line(name, slowest, line, tmp_path):
    pipeline = recorded(name, tmp_path).pipeline

    stage = pipeline.stages[pipeline.held_back_by]
    assert (stage.name, stage.file, stage.line) == (slowest, "/home/user/train.py", line)
    assert pipeline.wait_s + pipeline.consumer_s == pytest.approx(pipeline.step_s)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("map", "parallel_map"),
        ("fixed", "cache_before_shuffle"),
        ("generator", "python_function"),
        ("tiny", "vectorize"),
    ],
)
def test_the_advice_fits_what_was_planted(name, change, tmp_path):
    pipeline = recorded(name, tmp_path).pipeline

    assert change in {one.change for one in pipeline.advice}
    assert all(1 <= one.bound <= pipeline.bound * 1.0001 for one in pipeline.advice)


def test_a_slow_consumer_is_told_that_nothing_helps(tmp_path):
    found = recorded("consumer", tmp_path)

    assert found.pipeline.advice == ()
    assert "no change of the pipeline gains over 1.0" in lines_of(found, cwd="/")[-1]


def test_the_report_names_files_from_the_folder_of_the_command(tmp_path):
    lines = lines_of(recorded("map", tmp_path), cwd="/home/user")

    assert any("train.py:16: map(..., num_parallel_calls=tf.data.AUTOTUNE)" in x for x in lines)
    assert not any("/home/user" in line for line in lines)


def test_random_maps_are_not_cached_and_fixed_ones_are(tmp_path):
    changes = {one.change for one in recorded("map", tmp_path).pipeline.advice}
    fixed = recorded("fixed", tmp_path).pipeline.advice

    assert "cache" not in changes
    assert fixed[0].cache_bytes == 4000 * 404  # 100 float32 and a label


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ([], "not_iterated"),
        ([{"k": "pipeline", "id": 1, "chain": []}], "not_iterated"),
        ([{"k": "unread", "id": 1, "error": "NotFoundError"}], "autotune_off"),
    ],
)
def test_what_is_missing_is_said_with_its_reason(lines, missing, tmp_path):
    (tmp_path / "tfdata-7.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))

    found = read_tf_data(tmp_path, num_cores=2)

    assert (found.pipeline, found.missing) == (None, missing)
    assert lines_of(found, cwd="/")[0].startswith("tf.data    not measured: ")


def test_a_command_without_tensorflow_has_no_lines(tmp_path):
    assert read_tf_data(tmp_path, num_cores=2) is None
    assert not has_enough(tmp_path)


def test_few_batches_are_too_few(tmp_path):
    lines = (RECORDED / "map.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "tfdata-7.jsonl").write_text("".join(lines[:3]))

    assert read_tf_data(tmp_path, num_cores=2).missing == "too_short"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_ParallelMapDataset", "Map"),
        ("ParallelMapV2", "Map"),
        ("_PaddedBatchDataset", "Batch"),
        ("TFRecordDatasetV2", "TFRecord"),
        ("LegacyParallelInterleaveV2", "Interleave"),
        ("MemoryCacheImpl", "Cache"),
        ("ForeverRepeat", "Repeat"),
    ],
)
def test_classes_and_nodes_have_one_kind(name, kind):
    assert kind_of(name) == kind


def test_kinds_are_written_as_a_script_calls_them():
    assert [method_of(one) for one in ("FlatMap", "TFRecord", "Range", "Prefetch")] == [
        "flat_map",
        "TFRecordDataset",
        "range",
        "prefetch",
    ]


def stage(name, work_s, **facts):
    num_parallel = facts.get("num_parallel")
    defaults = {
        "file": "/train.py",
        "line": 1,
        "elements_per_batch": 8.0,
        "num_parallel": None,
        "num_asked": None,
        "draws": True if name == "map" else None,
        "runs_python": None,
        "bytes_per_element": 1.0,
        "num_elements": 10,
    }
    return TfStage(
        name=name, work_s=work_s, time_s=work_s / (num_parallel or 1), **(defaults | facts)
    )


def test_parts_run_beside_each_other_and_stages_within_a_part_add_up():
    stages = [stage("range", 1.0), stage("map", 4.0, num_parallel=2.0), stage("filter", 0.5)]
    stages += [stage("batch", 0.25), stage("prefetch", 0.0), stage("skip", 0.125)]

    assert [time_s for _, time_s in part_times(stages)] == [1.0, 2.0, 0.75, 0.125]
    assert least_step(stages, 1.0) == 2.0
    assert least_step(stages, 3.0) == 3.125


def test_work_in_the_consumers_thread_is_prefetched():
    advice = advise([stage("batch", 0.5)], step_s=1.5, consumer_s=1.0, num_cores=1)

    assert [(one.change, one.bound) for one in advice] == [("prefetch", 1.5)]


def test_slow_files_are_read_at_once_and_a_fixed_number_of_calls_is_tuned():
    reading = stage("interleave", 2.0)
    mapped = stage("map", 4.0, num_parallel=2.0, num_asked=2)
    prefetched = stage("prefetch", 0.0)

    slow_read = advise([reading, prefetched], step_s=2.0, consumer_s=1.0, num_cores=4)
    slow_map = advise([mapped, prefetched], step_s=2.0, consumer_s=1.0, num_cores=4)
    asked = stage("map", 4.0, num_parallel=2.0, num_asked=AUTOTUNE)

    assert [one.change for one in slow_read] == ["parallel_reads", "cache"]
    assert [(one.change, one.bound) for one in slow_map] == [("autotune", 2.0)]
    assert advise([asked, prefetched], step_s=2.0, consumer_s=1.0, num_cores=4) == ()


# -- the guest, with a double of TensorFlow's classes


class Base:
    count = -1

    def __init__(self, source=None, operators=None):
        self.sources = [] if source is None else [source]
        nodes = [SimpleNamespace(op=one) for one in operators or ()]
        graph = SimpleNamespace(node=nodes, library=SimpleNamespace(function=[]))
        function = SimpleNamespace(graph=SimpleNamespace(as_graph_def=lambda: graph))
        self._map_func = None if operators is None else SimpleNamespace(function=function)

    def _inputs(self):
        return self.sources

    def cardinality(self):
        return self.count


class _MapDataset(Base):
    pass


class _RangeDataset(Base):
    count = 12


@pytest.fixture
def base(monkeypatch):
    monkeypatch.setattr(Base, "__init__", Base.__init__)  # put back what the hook replaces
    return Base


def test_the_guest_notes_lines_and_settings_and_puts_nothing_on_a_data_set(base):
    calls = PipelineCalls(FileOwners(json))
    calls.hook(base, install.guarded)

    source = _RangeDataset()
    mapped = _MapDataset(source, operators=("RandomUniform", "EagerPyFunc"))
    chain = calls.chain(mapped)

    assert [row["class"] for row in chain] == ["_MapDataset", "_RangeDataset"]
    assert [row["file"] for row in chain] == [__file__] * 2
    assert chain[1]["line"] + 1 == chain[0]["line"]
    assert (chain[0]["draws"], chain[0]["python"], chain[0]["count"]) == (True, True, None)
    assert (chain[1]["draws"], chain[1]["count"]) == (None, 12)
    assert vars(source) == {"sources": [], "_map_func": None}


def test_a_failure_of_ours_never_reaches_the_script(base):
    calls = PipelineCalls(FileOwners(json))
    calls.hook(base, install.guarded)
    calls.places = None

    assert _RangeDataset().sources == []


def model(elements):
    node = SimpleNamespace(
        name="Root",
        num_elements=elements,
        processing_time=5,
        bytes_produced=1,
        parameters=[],
        inputs=[],
    )
    return SimpleNamespace(nodes={1: node}, output=1, gap_times=[1000] * min(elements, 100))


class Iterator:
    _iterator_resource = "resource"


def test_the_reads_end_once_enough_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr("threading.Thread.start", lambda self: None)
    now, elements = [0.0], [0]
    reads = ModelReads(str(tmp_path), lambda resource: model(elements[0]), lambda: now[0])
    kept = Iterator()
    reads.see(kept, [])
    for _ in range(5):
        now[0], elements[0] = now[0] + 1.0, elements[0] + 30
        reads.read_all()
    (path,) = tmp_path.glob("tfdata-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    assert [line["k"] for line in lines] == ["pipeline"] + ["model"] * 4 + ["enough"]
    assert [line["seconds"] for line in lines[1:5]] == [None, 1.0, 1.0, 1.0]
    assert [len(line["gaps_us"]) for line in lines[1:5]] == [30] * 4
    assert has_enough(tmp_path)


def test_an_iterator_that_is_gone_is_read_once_more_and_released(tmp_path, monkeypatch):
    monkeypatch.setattr("threading.Thread.start", lambda self: None)
    reads = ModelReads(str(tmp_path), lambda resource: model(3))
    reads.see(Iterator(), [])

    reads.read_all()

    assert reads.seen == []
    assert len(list(tmp_path.glob("tfdata-*.jsonl"))) == 1
