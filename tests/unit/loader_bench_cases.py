"""Windows and passes of `data bench`, as the guest writes them."""

MS = 1_000_000
LOADER = {
    "dataset": "Images",
    "place": "train.py:12",
    "batch_size": 4,
    "num_workers": 0,
    "is_iterable": False,
    "num_samples": 400,
    "pin_memory": False,
}
BESIDE = {"loader": {**LOADER, "num_workers": 2}}


def loop(work_ms, wait_ms, *, what="full", **fields):
    line = {
        "k": "loop",
        "pass": what,
        "steps": [[int(work_ms * MS), int(wait_ms * MS)] for _ in range(30)],
        "tail_ns": 0,
        "first_batch_ns": 9 * MS,
        "loader": LOADER,
        "others": [],
        "num_shapes": 1,
        "num_kept": 1,
        "device": None,
        "copies_ns": None,
    }
    return {**line, **fields}


def read(name, *, transforms=(), read_bytes=1 << 20, **parts_ms):
    """A pass over four batches of four samples, with a time by part for a batch."""
    times = {part.replace("_", ":"): int(3 * value * MS) for part, value in parts_ms.items()}
    return {
        "k": "pass",
        "pass": name,
        "num_files": 16,
        "batches": 4,
        "timed_batches": 3,
        "samples": 12,
        "first_ns": 5 * MS,
        "wall_ns": times,
        "cpu_ns": times,
        "transforms": list(transforms),
        "sample": [["fetch", 0, 2 * MS], ["decode", MS, 2 * MS]],
        "is_whole_batch": False,
        "read_bytes": read_bytes,
    }


def uneven(line, *, low, high):
    """The loop with every second step's work at either of two times [ms]."""
    _, wait_ns = line["steps"][0]
    return {**line, "steps": [[int((low, high)[i % 2] * MS), wait_ns] for i in range(30)]}


SLOW = {
    "fetch": read("cached", fetch=8, decode=1, collate=1),
    "decode": read("cached", fetch=1, decode=8, collate=1),
    "transform": read(
        "cached",
        transforms=[{"name": "Crop", "place": "train.py:7"}, {"name": "Flip", "place": None}],
        fetch=2,
        transform_0=5,
        transform_1=3,
    ),
    "collate": read("cached", fetch=1, decode=1, collate=8),
}
