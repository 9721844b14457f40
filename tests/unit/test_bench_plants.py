"""Each planted bottleneck is named: a training with one slow part, measured by the three passes."""

import atexit
import gc
import importlib.util
import sys
from pathlib import Path

import pytest

from steptime.levers.tools.forked_copy import do_apart
from steptime.measure.tried.bench_lines import PassLines, find_line, make_loader_bench
from steptime.record import files, kinds
from steptime.record.lines import LineReader

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

from steptime.guest.bootstrap import enter, finish  # noqa: E402
from steptime.guest.modes.alone import BenchMode  # noqa: E402

importlib.import_module("torch._dynamo")  # once, and not in each copy of this process

SPECIMEN = Path(__file__).parent.parent / "specimens" / "planted_loader.py"
SHORT = ("--num-samples", "112", "--num-epochs", "1")


def load_specimen():
    spec = importlib.util.spec_from_file_location("planted_loader", SPECIMEN)
    module = sys.modules["planted_loader"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_pass(folder, what, words, **wish):
    """The lines of one pass over the specimen, in a copy of this process."""
    run = folder / what
    run.mkdir()
    wish = {"pass": what.partition("-")[0], "seconds": 0.01, **wish}

    def train() -> dict:
        gc.freeze()  # to look through all that pytest holds would take as long as a step
        torch.set_num_threads(1)
        targets: dict = {}
        mode = BenchMode(wish)
        mode.install(enter(torch, str(run), mode, targets), targets, finish)
        load_specimen().main(words)
        atexit._run_exitfuncs()
        return {}

    assert do_apart(train, limit_s=120) == {}
    return list(LineReader(run / files.BENCH).read_to_end())


def bench(folder, *words, **wish):
    """What the passes say; while that is unclear, both loops are run again, as the command does."""
    lines = {what: run_pass(folder, what, words, **wish) for what in ("full", "consumer", "parts")}
    for number in (2, 3):
        found = make_loader_bench(("python", "train.py"), PassLines(**lines), num_cores=2)
        if found.missing.get("bottleneck") != "unclear":
            break
        for what in ("full", "consumer"):
            lines[what] += run_pass(folder, f"{what}-{number}", words, **wish, seconds=0.2 * number)
    return make_loader_bench(("python", "train.py"), PassLines(**lines), num_cores=2)


@pytest.mark.slow("six trainings, three passes each")
@pytest.mark.serial  # beside other tests a few percent stay unclear
@pytest.mark.parametrize("plant", ["fetch", "decode", "transform", "collate", "copy", "consumer"])
def test_a_planted_bottleneck_is_named(tmp_path, plant):
    found = bench(tmp_path, "--plant", plant, *SHORT)

    assert found.bottleneck == plant
    assert (found.loader.dataset, found.loader.batch_size) == ("Images", 4)
    assert found.loader.place.partition(":")[0].endswith("planted_loader.py")
    assert [other.num_samples for other in found.others] == [8]
    assert [one.name for one in found.transforms] == ["ToNumbers", "Rotate"]
    if plant == "consumer":
        assert found.bound.low < 1.2
    else:
        assert found.bound.estimate > 1.5


def test_workers_and_iterables_are_measured_too(tmp_path):
    words = ("--plant", "decode", "--iterable", "--num-workers", "1", *SHORT)
    found = bench(tmp_path, *words, curve=True)

    assert found.bottleneck == "decode"
    assert (found.loader.is_iterable, found.loader.num_workers) == (True, 1)
    assert found.first_batch_s > 0
    assert found.curve[0].is_measured


def test_a_loop_that_ends_early_leaves_what_was_seen(tmp_path):
    lines = run_pass(
        tmp_path, "full", ("--plant", "fetch", "--num-samples", "20", "--num-epochs", "2")
    )

    loop = find_line(lines, kinds.BENCH_LOOP)
    assert 0 < len(loop["steps"]) < 20
