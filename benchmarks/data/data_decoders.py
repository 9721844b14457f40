"""What decoding a JPEG costs in each library, and whether two threads decode twice as much.

    python benchmarks/data/data_decoders.py FOLDER... [--rounds 7] [--turbojpeg LIBRARY]

Decoders take turns on the same images, from bytes in memory to an array (height, width, 3) of
RGB: CPU time per image of one thread; how fast two threads are beside two processes (1.0: as fast);
and in which fraction of decodings another thread of Python ran (0: the interpreter lock is held).
All are medians over the rounds, with quartiles. The pixels are compared with Pillow's. A library
that does not load is listed with its error. Results go to benchmarks/results/data_decoders.json.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "data_decoders.json"
NUM_IMAGES = 120
Decode = Callable[[bytes], Any]
Fork = multiprocessing.get_context("fork").Process


def pillow() -> Decode:
    image = import_module("PIL.Image")
    return lambda data: np.asarray(image.open(io.BytesIO(data)).convert("RGB"))


def simplejpeg() -> Decode:
    decode = import_module("simplejpeg").decode_jpeg
    return lambda data: decode(data, "RGB")


def turbojpeg(library: str | None) -> Decode:
    module = import_module("turbojpeg")
    decoder = module.TurboJPEG(library)
    return lambda data: decoder.decode(data, pixel_format=module.TJPF_RGB)


def opencv() -> Decode:
    cv2 = import_module("cv2")
    cv2.setNumThreads(1)

    def decode(data: bytes) -> Any:
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)

    return decode


def torchcodec() -> Decode:
    decoders = import_module("torchcodec.decoders")
    torch = import_module("torch")
    return lambda data: decoders.decode_image(torch.frombuffer(data, dtype=torch.uint8))


def cpu_of(decode: Decode, images: list[bytes]) -> float:
    """Return the CPU time of an image [s]."""
    began = time.process_time()
    for image in images:
        decode(image)
    return (time.process_time() - began) / len(images)


def wall_of(decode: Decode, images: list[bytes], kind: Any) -> float:
    """Return the wall time in which two threads, or processes, decode all images each [s]."""
    module: Any = threading if kind is threading.Thread else multiprocessing
    gate = module.Barrier(3)

    def work() -> None:
        gate.wait()
        for image in images:
            decode(image)

    started = [kind(target=work) for _ in range(2)]
    for one in started:
        one.start()
    gate.wait()
    began = time.perf_counter()
    for one in started:
        one.join()
    return time.perf_counter() - began


def let_through(decode: Decode, images: list[bytes]) -> float:
    """Return the fraction of decodings during which another thread of Python ran.

    Python gives nobody the lock by itself here, so that only a decoder that releases it is above 0;
    a busy machine may leave the other thread no time.
    """
    seen, done = {"ran": False, "num": 0}, threading.Event()

    def work() -> None:
        for image in images:
            seen["ran"] = False
            decode(image)
            seen["num"] += seen["ran"]
        done.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        seen["ran"] = True
        time.sleep(0)
    thread.join()
    sys.setswitchinterval(before)
    return seen["num"] / len(images)


def measure(decoders: dict[str, Decode], images: list[bytes], rounds: int) -> dict[str, Any]:
    decoded = {
        name: [np.asarray(decode(one)) for one in images] for name, decode in decoders.items()
    }
    rows: dict[str, Any] = {
        name: {"cpu_us": [], "as_processes": [], "lets_through": []} for name in decoders
    }
    for _ in range(rounds):
        for name, decode in decoders.items():
            row = rows[name]
            row["cpu_us"].append(cpu_of(decode, images) * 1e6)
            threads = wall_of(decode, images, threading.Thread)
            row["as_processes"].append(wall_of(decode, images, Fork) / threads)
            row["lets_through"].append(let_through(decode, images))
    for name, row in rows.items():
        for key, values in row.items():
            row[key] = {"median": median(values), "quartiles": quantiles(values)[::2]}
        row["as_pillow"] = sum(
            one.shape == other.shape and bool((one == other).all())
            for one, other in zip(decoded[name], decoded["Pillow"], strict=True)
        )
    return rows


def version_of(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def load(library: str | None) -> tuple[dict[str, Decode], dict[str, str]]:
    """Return the decoders that load, and the errors of the others."""
    makers = {
        "Pillow": pillow,
        "simplejpeg": simplejpeg,
        "PyTurboJPEG": lambda: turbojpeg(library),
        "OpenCV": opencv,
        "torchcodec": torchcodec,
    }
    decoders, missing = {}, {}
    for name, make in makers.items():
        try:
            decoders[name] = make()
        except (ImportError, OSError, RuntimeError) as error:
            cause = error.__cause__ or error
            missing[name] = f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
    return decoders, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turbojpeg", help="the file of the library libturbojpeg")
    options = parser.parse_args()
    decoders, missing = load(options.turbojpeg)
    folders = {}
    for folder in options.folders:
        files = sorted(folder.rglob("*.jp*g"))[:NUM_IMAGES]
        images = [file.read_bytes() for file in files]
        rows = measure(decoders, images, options.rounds)
        folders[folder.name] = {"num_images": len(images), "decoders": rows}
        for name, row in rows.items():
            cpu, scaled, through = (
                row[key]["median"] for key in ("cpu_us", "as_processes", "lets_through")
            )
            print(
                f"{folder.name:<20} {name:<12} {cpu:>6.0f} us CPU  two threads {scaled:.2f} of two "
                f"processes  lock released in {through:.0%}  as Pillow {row['as_pillow']}"
            )
    result = {
        "rounds": options.rounds,
        **stamp(),
        "machine": {"cpus": os.cpu_count(), "processor": platform.machine(),
                    "python": platform.python_version(), "load": os.getloadavg()[0]},
        "versions": version_of("Pillow", "simplejpeg", "PyTurboJPEG", "opencv-python-headless",
                               "torchcodec"),
        "not_loaded": missing,
        "folders": folders,
    }  # fmt: skip
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
