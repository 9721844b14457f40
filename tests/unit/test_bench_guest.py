"""The guest's part of `data bench`: timed parts, files, transforms, kept batches."""

import io
import os
import subprocess
import sys
import time
import types

import pytest

from steptime.guest.bench import opened_files, transform_places
from steptime.guest.bench.part_timer import PartTimer
from steptime.guest.bench.sample_parts import ChunkReads, Transforms, hook_decoders
from steptime.levers.tools.forked_copy import do_apart

torch = pytest.importorskip("torch")

from steptime.guest.bench.kept_batches import KeptBatches, shape_of  # noqa: E402
from steptime.guest.bench.loader_passes import read_batches, worker_counts  # noqa: E402
from steptime.guest.bench.loop_pass import NS, LoopPass  # noqa: E402


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


def double(value):
    return 2 * value


class Rows(torch.utils.data.Dataset):
    def __init__(self, transform=double):
        self.transform = transform
        self.read = []

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.read.append(index)
        return self.transform(torch.tensor(float(index)))


def test_parts_are_counted_without_those_inside_them():
    timer = PartTimer()
    inner = timer.timed("inner", lambda: time.sleep(0.002))
    timer.timed_sample(timer.timed("outer", inner))

    assert set(timer.wall_ns) == {"fetch", "outer", "inner"}
    assert timer.wall_ns["inner"] >= 2_000_000 > timer.wall_ns["outer"]
    assert [span[0] for span in timer.middle_sample()] == ["fetch", "outer", "inner"]
    assert timer.num_samples == 1


def test_a_part_that_fails_is_closed():
    timer = PartTimer()
    with pytest.raises(ZeroDivisionError):
        timer.timed_sample(lambda: 1 / 0)

    assert (timer.stack, timer.num_samples) == ([], 0)


def test_transforms_give_what_they_gave_and_keep_their_attributes():
    timer = PartTimer()
    found = Transforms(timer)
    rows = Rows(Compose([double, Compose([double])]))
    found.take_dataset(torch.utils.data.Subset(rows, [0, 1]))

    assert rows[3] == 12
    assert [one["name"] for one in found.found] == ["double", "double"]
    assert all(one["place"].endswith(f"{double.__code__.co_firstlineno}") for one in found.found)
    assert set(timer.wall_ns) == {"transform:0", "transform:1"}


def test_a_transform_without_a_chain_is_timed():
    found, rows = Transforms(PartTimer()), Rows()
    found.take_dataset(rows)

    assert rows[3] == 6
    assert rows.transform.__name__ == "double"


def test_the_line_of_each_element_of_a_chain_is_known():
    module = types.SimpleNamespace(Compose=type("Compose", (Compose,), {}))
    transform_places.note_makers(module, "Compose")
    chain = module.Compose(
        [
            double,
            abs,
        ]
    )
    line = sys._getframe().f_lineno

    assert transform_places.element_place(chain, 0).endswith(f":{line - 4}")
    assert transform_places.element_place(chain, 1).endswith(f":{line - 3}")
    assert transform_places.element_place(Compose([]), 0) is None


def test_decoders_are_timed_wherever_they_were_imported(monkeypatch):
    def decode_jpeg(data):
        return data

    library = types.ModuleType("simplejpeg")
    library.decode_jpeg = decode_jpeg
    script = types.ModuleType("its_script")
    script.decode = decode_jpeg
    monkeypatch.setitem(sys.modules, "simplejpeg", library)
    monkeypatch.setitem(sys.modules, "its_script", script)

    def decode() -> dict:
        timer, files = PartTimer(), []
        hook_decoders(timer, files.append)
        return {"found": script.decode("a.jpg"), "parts": list(timer.wall_ns), "files": files}

    answer = do_apart(decode, limit_s=60)
    assert answer == {"found": "a.jpg", "parts": ["decode"], "files": ["a.jpg"]}


def test_a_decoder_that_a_worker_alone_imports_is_timed(tmp_path, monkeypatch):
    (tmp_path / "soundfile.py").write_text("def read(data): return data")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "soundfile", raising=False)

    def decode() -> dict:
        timer = PartTimer()
        hook_decoders(timer, lambda path: None)
        import soundfile

        return {"found": soundfile.read("x"), "parts": list(timer.wall_ns)}

    assert do_apart(decode, limit_s=60) == {"found": "x", "parts": ["decode"]}


def test_the_pixels_of_pillow_are_decoding_although_nobody_opened_an_image_before():
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.effect_noise((64, 64), 50).save(file, "PNG")
    code = (
        "import io, sys; import PIL.Image; assert 'PIL.ImageFile' not in sys.modules\n"
        "from steptime.guest.bench.part_timer import PartTimer\n"
        "from steptime.guest.bench.sample_parts import hook_decoders\n"
        "timer = PartTimer(); hook_decoders(timer, print)\n"
        "image = PIL.Image.open(io.BytesIO(sys.stdin.buffer.read())); timer.forget()\n"
        "image.load(); print(*timer.wall_ns)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=file.getvalue(), capture_output=True)

    assert (done.stdout, done.stderr) == (b"decode\n", b"")


def test_a_slow_loop_ends_with_fewer_steps():
    window = types.SimpleNamespace(window_ns=3 * NS, max_steps=400)
    ended = [LoopPass.is_enough(window, *seen) for seen in ((19, 50 * NS), (20, 4 * NS))]
    slow = [LoopPass.is_enough(window, num, 61 * NS) for num in (4, 5)]

    assert ended + slow == [False, True, False, True]


def test_chunks_of_hdf5_that_hold_more_than_is_asked_for_are_counted(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=torch.zeros(64, 4).numpy(), chunks=(16, 4))

    def read() -> dict:
        reads = ChunkReads()
        with h5py.File(tmp_path / "x.h5") as file:
            file["x"][3], file["x"][:32]
        return {"asked": reads.asked, "chunks": reads.chunks}

    assert do_apart(read, limit_s=60) == {"asked": 33 * 16, "chunks": (16 + 32) * 16}


def test_files_that_are_opened_are_found_and_dropped(tmp_path):
    path = tmp_path / "sample.bin"
    path.write_bytes(b"x" * 4096)

    def read() -> dict:
        of_other_tests = {*opened_files.open_files(), *opened_files.mapped_files()}
        files = opened_files.OpenedFiles()
        path.read_bytes()
        with (tmp_path / "written").open("w"):
            pass
        return {"files": [one for one in files.found() if one not in of_other_tests]}

    assert do_apart(read, limit_s=60)["files"] == [str(path)]
    assert opened_files.drop_from_cache([str(path), str(tmp_path / "gone")]) == 1


def test_what_is_done_apart_leaves_no_trace():
    rows, state = Rows(), torch.get_rng_state()
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    first = do_apart(lambda: read_batches(torch, loader), limit_s=60)
    again = do_apart(lambda: read_batches(torch, loader), limit_s=60)

    assert rows.read == []
    assert torch.equal(torch.get_rng_state(), state)
    assert (first["batches"], first["samples"]) == (again["batches"], again["samples"]) == (3, 8)
    assert {"fetch", "transform:0", "collate"} <= set(first["wall_ns"])


def test_a_copy_that_fails_or_dies_or_hangs_says_so():
    assert do_apart(lambda: {"x": 1 / 0}, limit_s=60)["error"].startswith("ZeroDivisionError")
    assert do_apart(lambda: os._exit(3), limit_s=60) == {"error": "ended"}
    assert do_apart(lambda: time.sleep(60), limit_s=0.05) == {"error": "time_limit"}


def test_whole_batches_and_iterables_are_read_like_torch_does():
    class Whole(Rows):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.arange(10.0))

    whole = torch.utils.data.DataLoader(Whole(), batch_size=4)
    stream = torch.utils.data.DataLoader(Stream(), batch_size=4)
    read = [
        do_apart(lambda one=one: read_batches(torch, one), limit_s=60) for one in (whole, stream)
    ]

    assert [one["batches"] for one in read] == [3, 3]
    assert [one["is_whole_batch"] for one in read] == [True, False]
    assert [one["samples"] for one in read] == [8, 6]


def test_a_kept_batch_is_given_until_the_epoch_ends_each_time_a_copy():
    batch = [torch.ones(2), {"y": torch.zeros(3)}]
    kept = KeptBatches(torch, [batch], num=2, device=None)
    epoch = types.SimpleNamespace(_num_yielded=0)

    class Epoch:
        _num_yielded = 0

    epoch = Epoch()
    given = kept.take(epoch)
    given[0].zero_()
    assert torch.equal(kept.take(epoch)[0], torch.ones(2))
    with pytest.raises(StopIteration):
        kept.take(epoch)


def test_several_batches_are_kept_where_shapes_differ():
    alike = iter([torch.ones(2)] * 5)
    varied = iter([torch.ones(n) for n in (2, 3, 4)])

    assert len(KeptBatches.read(lambda: next(alike))) == 1
    assert len(KeptBatches.read(lambda: next(varied))) == 3
    assert shape_of([torch.ones(2), (torch.ones(1, 3),)]) == "(2,) (1, 3)"


def test_a_batch_that_copies_itself_does_it_once():
    class Own:
        copies = 0

        def to(self, device):
            Own.copies += 1
            return Own()

    batch = Own()
    kept = KeptBatches(torch, [[batch]], num=None, device=None)
    epoch = type("Epoch", (), {"_num_yielded": 0})()
    for _ in range(3):
        (one,) = kept.take(epoch)
        one.to("cpu")

    assert Own.copies == 1


def test_the_curve_goes_up_to_the_cores():
    counts = worker_counts()

    assert counts[0] == 0
    assert counts[-1] == len(os.sched_getaffinity(0))
