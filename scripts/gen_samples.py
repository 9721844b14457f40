"""Writes the samples of reports into the README and the pages, as today's code prints them.

A page has `<!-- sample: first-run -->` before a sample and `<!-- /sample -->` after it. What the
samples are printed from is kept in `docs/samples/`, a store for each training that was recorded:
the values that its runs, studies and fits came to, with made-up names in the place of this
machine's. So a sample is printed again without a run.

    python scripts/gen_samples.py --write  # print all samples again, into the pages
    python scripts/gen_samples.py --check  # exit code 1 if a page has another sample, and which
    python scripts/gen_samples.py gpt vae fit several  # record these again, then as with --write

Recording takes a quarter of an hour on a quiet machine, and needs Steptime and torch here. `vae`
is a script of pytorch/examples: it needs torchvision, and a clone or `--examples FOLDER`.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "docs" / "samples"
KEPT = {
    "runs": ("command.json", "measurement*.json", "diagnosis*.json", "ceilings.json"),
    "studies": ("study.json",),
    "fits": ("fit.json",),
}
"""What is kept of each kind: all that its report is made from."""

# --- the samples ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a command prints that needs no run, on a terminal of so many columns and rows."""

    store: str
    words: str
    columns: int = 96
    rows: int = 24


COMPARED = "compare last~5 last~3 last~1 -- last~4 last~2 last"
BACKWARDS = "compare last~4 last~2 last -- last~5 last~3 last~1 --fail-if-slower 5%"
PRINTED = {
    "readme": Sample(store="gpt", words="show run", columns=100, rows=26),
    "input-bound": Sample(store="vae", words="show last~1", rows=40),
    "first-run": Sample(store="gpt", words="show run", rows=40),
    "tune": Sample(store="gpt", words="tune"),
    "compare": Sample(store="vae", words=COMPARED),
    "gate": Sample(store="vae", words=BACKWARDS),
    "fit": Sample(store="fit", words="show fit"),
    "trainings": Sample(store="several", words="show run", rows=40),
}
MARKED = re.compile(r"(?<=<!-- sample: )([\w-]+)( -->\n)(.*?)(?=<!-- /sample -->)", re.DOTALL)


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def give(words: str) -> int:
    """Give a command here; of `tune`, say what it says at its end about the study that is kept."""
    if words != "tune":
        from steptime.cli.main import main as give_words

        return give_words(words.split())
    from steptime.app.study.study_listing import read_study
    from steptime.cli.output import console_for
    from steptime.report.blocks.study.study_report import study_report
    from steptime.report.text.paint_text import print_report

    (folder,) = Path(".steptime", "studies").iterdir()
    print_report(study_report(read_study(folder)), console=console_for(sys.stdout))
    return 0


def printed(sample: Sample) -> str:
    """What the command of a sample prints today.

    Raises:
        SystemExit: the command failed.
    """
    screen, said = Terminal(), io.StringIO()
    with tempfile.TemporaryDirectory(prefix="st.") as home:
        shutil.copytree(SAMPLES / sample.store, Path(home, ".steptime"))
        os.environ.update(HOME=home, COLUMNS=str(sample.columns), LINES=str(sample.rows))
        os.environ.update(TERM="dumb")  # no colors
        here = Path.cwd()
        os.chdir(home)
        try:
            with redirect_stdout(screen), redirect_stderr(said):
                code = give(sample.words)
        finally:
            os.chdir(here)
    if code not in (0, 4, 5):  # a gate that was not met is an answer, too
        raise SystemExit(f"error: {sample.words} in {sample.store}: {code}: {said.getvalue()}")
    return "".join(f"{line.rstrip()}\n" for line in screen.getvalue().splitlines())


def pages() -> Iterator[tuple[Path, str, str]]:
    """Each page with a sample, as it is and as it should be."""
    texts = {name: printed(sample) for name, sample in PRINTED.items()}
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        now = page.read_text(encoding="utf-8")
        wanted = MARKED.sub(lambda m: f"{m[1]}{m[2]}```\n{texts[m[1]]}```\n", now)
        if MARKED.search(now):
            yield page, now, wanted


# --- recording --------------------------------------------------------------------------


def record_gpt(folder: Path, _: Path | None) -> None:
    """The example: a run, and a study that finds its levers."""
    shutil.copytree(ROOT / "examples" / "gpt", folder, dirs_exist_ok=True)
    steptime(folder, "run -- python train.py")
    steptime(folder, "tune --levers autocast,matmul_precision --budget 6m -- python train.py")


def record_several(folder: Path, _: Path | None) -> None:
    """The example twice, in one command."""
    shutil.copytree(ROOT / "examples" / "gpt", folder, dirs_exist_ok=True)
    script = "python train.py --steps 60\npython train.py --steps 90 --lr 3e-4\n"
    (folder / "train.sh").write_text(script, encoding="utf-8")
    steptime(folder, "run -- bash train.sh")


def record_fit(folder: Path, _: Path | None) -> None:
    """A training whose memory is what its blocks keep, under half of the memory that it needs."""
    script = ROOT / "benchmarks" / "fit" / "fit_scripts" / "wide_rows.py"
    shutil.copy(script, folder / "train.py")
    steptime(folder, "fit --memory-limit 700MiB -- python train.py")


def record_vae(folder: Path, examples: Path | None) -> None:
    """Three runs of a public script as written, and three with a loading process, in turns."""
    if examples is None:
        examples = folder / "examples"
        url = "https://github.com/pytorch/examples"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", url, examples], check=True)
    else:
        shutil.copytree(examples / "data", folder / "data", dirs_exist_ok=True)
    here = folder / "vae"
    shutil.copytree(examples / "vae", here, ignore=shutil.ignore_patterns(".steptime"))
    script = here / "main.py"
    written = script.read_text(encoding="utf-8")
    changed = re.sub(
        "(?m)^kwargs = .*", "kwargs = {'num_workers': 1, 'persistent_workers': True}", written
    )
    for text in (written, changed) * 3:
        script.write_text(text, encoding="utf-8")
        steptime(here, "run -- python main.py --epochs 2")


RECORDED: dict[str, Callable[[Path, Path | None], None]] = {
    "gpt": record_gpt,
    "vae": record_vae,
    "fit": record_fit,
    "several": record_several,
}


def steptime(folder: Path, words: str) -> None:
    """Give one command in a folder; its output is shown."""
    print(f"steptime {words}", file=sys.stderr)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": path, "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "steptime", *words.split()]
    subprocess.run(command, cwd=folder, env=env, check=True)


def keep(folder: Path, target: Path) -> None:
    """Keep of the one store below a folder what its reports are printed from, and nothing else."""
    from gen_run_folders import made_up  # type: ignore[import-not-found]

    (store,) = folder.rglob(".steptime")
    shutil.rmtree(target, ignore_errors=True)
    for kind, names in KEPT.items():
        for file in (one for name in names for one in store.glob(f"{kind}/2*/{name}")):
            kept = target / file.relative_to(store)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(made_up(file.read_text(encoding="utf-8"), folder), encoding="utf-8")
            if '"cause": "neighbor"' in kept.read_text(encoding="utf-8"):
                print(f"{kept.parent.name}: the machine was not quiet: record it again")


def main() -> None:
    """Record what was asked for; print, check or write the samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *RECORDED], metavar="NAME")
    parser.add_argument("--examples", type=Path, help="a checkout of pytorch/examples")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    for name in asked.names:
        with tempfile.TemporaryDirectory(prefix="st.") as folder:
            RECORDED[name](Path(folder), asked.examples)
            keep(Path(folder), SAMPLES / name)
    stale = [(page, wanted) for page, now, wanted in pages() if now != wanted]
    if asked.check and stale:
        raise SystemExit("\n".join(f"old samples: {page.relative_to(ROOT)}" for page, _ in stale))
    for page, wanted in stale:
        page.write_text(wanted, encoding="utf-8")
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
