"""Writes the run folders that the fast check diagnoses: one of each planted ailment.

    python scripts/gen_run_folders.py [NAME ...]     # all, or those of these ailments, or `study`

Each specimen of `tests/end_to_end/ailments.py` is truly run, on a machine that does nothing else,
until its diagnosis is right; so is a whole study, until it finds its lever. What the guest and the
sampler wrote, and the answers of the study, go to `tests/ailing_runs/`, with made-up names in the
place of this machine's folders, host and boot. Make them again when the record's schema changes,
and the study also when the search asks other questions; they are never edited.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from end_to_end.ailments import (  # type: ignore[import-not-found] # noqa: E402
    AILMENTS,
    Ailment,
    judge,
)
from end_to_end.kept_study import (  # type: ignore[import-not-found] # noqa: E402
    study_options,
)
from run_folders import (  # type: ignore[import-not-found] # noqa: E402
    ARCHIVE_OF_STUDY,
    KEPT,
    KEPT_AILMENTS,
    PLACE,
    STUDY,
    pack,
    path_of,
)
from steptime.tune.run_study import run_study  # noqa: E402

TRIES = 5
MADE_UP_BOOT = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
MADE_UP: dict[str, object] = {
    "environment_names": ["HOME", "PATH"],
    "steptime_version": "0.1.0",
    "git_revision": None,
    "environment": {},
}


def main() -> None:
    """Make them, and say how each went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *AILMENTS, "study"], metavar="NAME")
    wanted = parser.parse_args().names
    for name in wanted or [*KEPT_AILMENTS, "study"]:
        if name == "study":
            size = pack(ARCHIVE_OF_STUDY, search())
        else:
            size = pack(path_of(name), record(name, AILMENTS[name]))
        print(f"{name}: {size / 1024:.1f} KiB", flush=True)


def search() -> dict[str, bytes]:
    """The answers of a study that finds the lever that helps, and how it ended.

    Raises:
        SystemExit: no study found it.
    """
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="st.") as folder:
            found = run_study(study_options(Path(folder)), progress=lambda told: None)
            if found.recipe and found.recipe[0].name == "quick":
                (study,) = Path(folder).glob(".steptime/studies/2*")
                answers = sorted(study.glob("answers/*.json"))
                return {
                    path.name: made_up(path.read_text(), Path(folder)).encode()
                    for path in (*answers, study / STUDY)
                }
        print(f"study: {found.outcome} with {found.recipe}; again", file=sys.stderr)
    raise SystemExit(f"error: the lever was not found in {TRIES} studies")


def record(name: str, ailment: Ailment) -> dict[str, bytes]:
    """The files of a run whose diagnosis is right.

    Raises:
        SystemExit: no run was diagnosed as it should be.
    """
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="st.") as folder:
            run = train(Path(folder), ailment)
            document = json.loads((Path(folder) / "result.json").read_bytes())
            judgement = judge(ailment, document["data"]["diagnosis"])
            is_quiet = not judgement.beside or ailment.cause == "neighbor"
            if judgement.is_right and judgement.is_line_right is not False and is_quiet:
                return {
                    path.name: made_up(path.read_text(), Path(folder)).encode()
                    for path in sorted(run.iterdir())
                    if path.name.startswith(KEPT)
                }
        print(f"{name}: {judgement.kind} with {judgement.beside}; again", file=sys.stderr)
        time.sleep(1)
    raise SystemExit(f"error: {name} was not diagnosed as itself in {TRIES} runs")


def train(folder: Path, ailment: Ailment) -> Path:
    """Run the specimen under `steptime run`; return the run's folder."""
    launcher = () if ailment.nproc is None else ("-m", "torch.distributed.run", "--standalone")
    ranks = () if ailment.nproc is None else (f"--nproc-per-node={ailment.nproc}",)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    command = [sys.executable, "-m", "steptime", "run", "--json", "result.json", "--"]
    subprocess.run(
        [*command, sys.executable, *launcher, *ranks, str(ailment.path), *ailment.args],
        cwd=folder,
        env=own | {"HOME": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    (run,) = (folder / ".steptime" / "runs").iterdir()
    return run


def made_up(text: str, folder: Path) -> str:
    """The text of a file, without the names of this machine."""
    places = {
        str(ROOT / "tests" / "specimens"): PLACE,
        str(ROOT): f"{PLACE}/steptime",
        str(folder): PLACE,
        sys.prefix: f"{PLACE}/env",
        sys.base_prefix: "/usr",
        str(Path.home()): PLACE,
    }
    for mine, theirs in sorted(places.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(mine, theirs)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    text = text.replace(boot, MADE_UP_BOOT)
    text = text.replace(f'"host": "{socket.gethostname()}"', '"host": "node"')
    text = re.sub(r'("hostname_hash": )"[0-9a-f]+"', r'\1"0123456789abcdef"', text)
    for name, value in MADE_UP.items():
        plain = json.dumps(value).replace("\\", "\\\\")
        text = re.sub(
            rf'"{name}": (\[[^]]*\]|\{{[^}}]*\}}|"[^"]*"|null)', f'"{name}": {plain}', text
        )
    return text


if __name__ == "__main__":
    main()
