"""Makes the pictures of the README from real runs of the example GPT.

`docs/pictures/terminal.svg` is a moving picture of a terminal: `steptime run`, `steptime tune`.
`docs/pictures/page.png`, `changed.png` and `study.png` are the tops of pages that `steptime report`
writes: of that run, of one whose steps take longer from the middle on, and of that study. What the
terminal showed is kept in `docs/pictures/terminal.cast` (asciicast), and the moving picture is
drawn from that file alone, so that it can be drawn again without a run.

    pip install pyte                       # a terminal emulator; nothing else needs it
    python scripts/gen_pictures.py         # record, then draw: six minutes on a quiet machine
    python scripts/gen_pictures.py run     # one scene alone: run, tune (with their pages), changed
    python scripts/gen_pictures.py --draw  # draw the recording that is there

Steptime and torch must be installed here. The page needs Chromium
(on Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
RECORDING = PICTURES / "terminal.cast"
MOVIE = PICTURES / "terminal.svg"
SLOWED = ROOT / "tests" / "specimens" / "neighbor_starts.py"

TRAINING = "python train.py"
LEVERS = "autocast,matmul_precision"
SCENES = (  # what is said first, what is typed in front of the training, and how long it plays [s]
    ("Put this in front of the command that trains. The script stays as it is.",
     "steptime run -- ", 2.5),
    ("Find what makes it faster, and prove that the training is still as good.",
     f"steptime tune --levers {LEVERS} --budget 6m -- ", 4.0),
)  # fmt: skip
WANTED = ("run", "tune", "changed")
COLUMNS, ROWS = 96, 40
PAGE_WIDTH, PAGE_HEIGHT = 1100, 1200

# --- recording ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command wrote to the terminal at one moment since its start [s]."""

    at_s: float
    text: str


def record(argv: list[str], folder: Path) -> list[Output]:
    """Everything that a command shows on a terminal of its own."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        time.sleep(0.2)  # the size of the terminal is set meanwhile
        bin_folder = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([bin_folder, os.environ["PATH"]])
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", OMP_WAIT_POLICY="passive")
        for name in ("NO_COLOR", "COLUMNS", "LINES", "PYTHONPATH"):
            os.environ.pop(name, None)
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    start, seen = time.monotonic(), b""
    outputs: list[Output] = []
    while True:
        try:
            new = os.read(terminal, 1 << 16)
        except OSError:  # the terminal is gone: the command has ended
            break
        if not new:
            break
        text, seen = _decoded(seen + new)
        outputs.append(Output(at_s=round(time.monotonic() - start, 2), text=text))
    os.waitpid(child, 0)
    return outputs


def _decoded(data: bytes) -> tuple[str, bytes]:
    """The whole characters, and the bytes of one that has only begun."""
    for cut in range(len(data), max(len(data) - 4, -1), -1):
        try:
            return data[:cut].decode(), data[cut:]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def record_scene(prefix: str, folder: Path) -> list[Output]:
    """One recording, in which the folder is called ~/gpt."""
    print(f"recording: {prefix}{TRAINING}", file=sys.stderr)
    outputs = record([*prefix.split(), *TRAINING.split()], folder)
    return [Output(at_s=o.at_s, text=o.text.replace(str(folder), "~/gpt")) for o in outputs]


def write_recording(scenes: list[list[Output]]) -> None:
    """One asciicast file with a marker where each scene begins."""
    lines: list[Any] = [{"version": 2, "width": COLUMNS, "height": ROWS, "title": TRAINING}]
    start = 0.0
    for (_, prefix, _), outputs in zip(SCENES, scenes, strict=True):
        lines.append([round(start, 2), "m", prefix + TRAINING])
        lines += [[round(start + output.at_s, 2), "o", output.text] for output in outputs]
        start += outputs[-1].at_s + 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    RECORDING.write_text(text, encoding="utf-8")


def read_recording() -> list[tuple[str, list[Output]]]:
    """The typed command of each scene with what it showed, at times since the scene began."""
    scenes: list[tuple[str, list[Output]]] = []
    start = 0.0
    for line in RECORDING.read_text(encoding="utf-8").splitlines()[1:]:
        at_s, kind, text = json.loads(line)
        if kind == "m":
            scenes.append((text, []))
            start = at_s
        else:
            scenes[-1][1].append(Output(at_s=round(at_s - start, 2), text=text))
    return scenes


# --- what the terminal shows ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Characters of one row that look alike."""

    column: int
    text: str
    color: str
    is_bold: bool


Row = tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the terminal shows for a while [s]."""

    rows: tuple[Row, ...]
    for_s: float


FRAME_S = 0.12  # a reader notices nothing shorter
HOLD_S = 7.0  # time to read a report
PALETTE = {
    "default": "#e6edf3",
    "dim": "#8b949e",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",  # what terminals call yellow
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#39c5cf",
}


def frames() -> Iterator[Frame]:
    """All frames: the command is typed, its output is played, the end is held."""
    for (remark, prefix, plays_s), (command, outputs) in zip(SCENES, read_recording(), strict=True):
        yield from _typed(remark, prefix)
        screens = list(_screens([f"# {remark}", f"$ {command}"], outputs))
        length = outputs[-1].at_s - outputs[0].at_s
        last_slot, rows = 0, screens[0][1]
        for at_s, now in screens[1:]:
            slot = int((at_s - outputs[0].at_s) / length * plays_s / FRAME_S)
            if slot > last_slot:
                yield Frame(rows=rows, for_s=(slot - last_slot) * FRAME_S)
                last_slot = slot
            rows = now
        yield Frame(rows=rows, for_s=HOLD_S)


def _typed(remark: str, prefix: str) -> Iterator[Frame]:
    """The training's own command, then what is typed in front of it, a piece at a time."""
    above = Run(column=0, text=f"# {remark}", color=PALETTE["dim"], is_bold=False)
    dollar = Run(column=0, text="$", color=PALETTE["green"], is_bold=True)
    stops = [0, *range(2, len(prefix), 2), len(prefix)]
    for end in stops:
        typed = Run(column=2, text=prefix[:end], color=PALETTE["default"], is_bold=True)
        cursor = Run(column=2 + end, text="█", color=PALETTE["dim"], is_bold=False)
        rest = Run(column=3 + end, text=TRAINING, color=PALETTE["default"], is_bold=True)
        row: Row = (dollar, typed, cursor, rest)
        if end == len(prefix):
            row = _prompt(dollar, prefix)
        for_s = 1.6 if end == 0 else 0.9 if end == len(prefix) else 0.08
        yield Frame(rows=((above,), row), for_s=for_s)


def _prompt(dollar: Run, prefix: str) -> Row:
    command = Run(column=2, text=prefix + TRAINING, color=PALETTE["default"], is_bold=True)
    return (dollar, command)


def _screens(typed: list[str], outputs: list[Output]) -> Iterator[tuple[float, tuple[Row, ...]]]:
    """The rows on the screen after each output, what was typed above them."""
    try:
        pyte = importlib.import_module("pyte")
    except ImportError:
        raise SystemExit("error: the moving picture needs pyte: pip install pyte") from None
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    for line in typed:
        style = "38;5;245" if line.startswith("#") else "1"
        text = line.replace("$", "\x1b[32m$\x1b[39m", 1)
        stream.feed(f"\x1b[{style}m{text}\x1b[0m\r\n")
    for output in outputs:
        stream.feed(_without_faint(output.text))
        yield output.at_s, tuple(_row(screen, number) for number in range(ROWS))


def _without_faint(text: str) -> str:
    """Faint text in a gray of its own: pyte does not know faint."""
    return re.sub(
        r"\x1b\[([\d;]*)m",
        lambda found: "\x1b[" + re.sub(r"(?<![\d;])2(?![\d])", "38;5;245", found[1]) + "m",
        text,
    )


def _row(screen: Any, number: int) -> Row:
    """The row as runs of characters that look alike; blanks between them are left out."""
    runs: list[Run] = []
    cells = screen.buffer[number]
    for column in range(COLUMNS):
        cell = cells[column]
        if cell.data == " ":
            continue
        color = PALETTE.get(cell.fg, PALETTE["dim"] if cell.fg != "default" else cell.fg)
        last = runs[-1] if runs else None
        gap = column - last.column - len(last.text) if last else 0
        if last and gap <= 1 and (last.color, last.is_bold) == (color, cell.bold):
            text = last.text + " " * gap + cell.data
            runs[-1] = Run(column=last.column, text=text, color=color, is_bold=cell.bold)
        else:
            runs.append(Run(column=column, text=cell.data, color=color, is_bold=cell.bold))
    return tuple(runs)


# --- the moving picture ---------------------------------------------------------------

CELL_W, CELL_H = 8.4, 18  # of a character at 14 px
MARGIN, BAR = 18, 36
WIDTH = round(COLUMNS * CELL_W + 2 * MARGIN)
HEIGHT = ROWS * CELL_H + BAR + 2 * MARGIN
BLOCKS = {char: (8 - index) / 8 for index, char in enumerate("█▉▊▋▌▍▎▏")}


def draw(shots: list[Frame]) -> str:
    """The frames as one SVG: a film strip that moves by whole frames behind a window.

    A viewer that plays no styles, or is asked for less motion, shows the report of the first
    scene: the strip stands there unless it moves.
    """
    total = sum(shot.for_s for shot in shots)
    numbers: dict[Row, int] = {}
    strip, keyframes, at_s = [], [], 0.0
    for number, shot in enumerate(shots):
        uses = [
            f'<use href="#r{numbers.setdefault(row, len(numbers))}" y="{line * CELL_H}"/>'
            for line, row in enumerate(shot.rows)
            if row
        ]
        strip.append(f'<g transform="translate({number * WIDTH})">{"".join(uses)}</g>')
        keyframes.append(f"{100 * at_s / total:.3f}%{{transform:translateX({-number * WIDTH}px)}}")
        at_s += shot.for_s
    still = next(number for number, shot in enumerate(shots) if shot.for_s == HOLD_S)
    rows = [f'<g id="r{number}">{_svg_row(row)}</g>' for row, number in numbers.items()]
    dots = "".join(
        f'<circle cx="{20 + 20 * index}" cy="18" r="6" fill="{color}"/>'
        for index, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" \
viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>steptime run, then steptime tune, in front of python train.py</title>
<!-- Drawn by scripts/gen_pictures.py from terminal.cast: do not edit. -->
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
white-space:pre}}
.b{{font-weight:700}}
.film{{transform:translateX({-still * WIDTH}px);animation:film {total:.2f}s step-end infinite}}
@keyframes film{{{"".join(keyframes)}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none}}}}
</style>
<defs>
{chr(10).join(rows)}
</defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#0d1117"/>
{dots}
<svg x="{MARGIN}" y="{BAR + MARGIN // 2}" width="{WIDTH - 2 * MARGIN}" height="{ROWS * CELL_H}">
<g class="film">
{chr(10).join(strip)}
</g>
</svg>
</svg>
"""


def _svg_row(row: Row) -> str:
    """Text at its columns; blocks as rectangles, which join up at every size and in every font."""
    parts = []
    for run in row:
        start = 0
        for piece in re.finditer(r"[█▉▊▋▌▍▎▏]+|[^█▉▊▋▌▍▎▏]+", run.text):
            start = run.column + piece.start()
            x, text = f"{start * CELL_W:.1f}", piece[0]
            if text[0] in BLOCKS:
                width = sum(BLOCKS[char] for char in text) * CELL_W
                parts.append(
                    f'<rect x="{x}" y="3" width="{width:.1f}" height="12" fill="{run.color}"/>'
                )
            else:
                bold = ' class="b"' if run.is_bold else ""
                parts.append(
                    f'<text x="{x}" y="14" textLength="{len(text) * CELL_W:.1f}" '
                    f'fill="{run.color}"{bold}>{escape(text)}</text>'
                )
    return "".join(parts)


# --- the page -------------------------------------------------------------------------


def take_page(folder: Path, picture: Path, what: str = "run") -> None:
    """The top of the page of the newest run (or study) in the folder, as Chromium shows it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None:
        raise SystemExit("error: pictures of pages need Chromium: apt-get install chromium")
    page = folder / "page.html"
    steptime = [sys.executable, "-m", "steptime"]
    subprocess.run(
        [*steptime, "report", what, "-o", str(page), "--no-open"],
        cwd=folder,
        check=True,
    )
    subprocess.run(
        [
            *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={PAGE_WIDTH},{PAGE_HEIGHT}", "--virtual-time-budget=8000"),
            *(f"--user-data-dir={folder / 'browser'}", f"--screenshot={picture}", page.as_uri()),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    image = importlib.import_module("PIL.Image").open(picture)
    image.convert("RGB").save(picture, optimize=True)


def take_pictures(wanted: set[str]) -> None:
    """Record the scenes and take the pages that are wanted, in folders that vanish."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "gpt"
        shutil.copytree(ROOT / "examples" / "gpt", folder)
        scenes = dict(read_recording()) if RECORDING.exists() else {}
        for _, prefix, _ in SCENES:
            if prefix.split()[1] in wanted:
                scenes[prefix + TRAINING] = record_scene(prefix, folder)
        write_recording([scenes[prefix + TRAINING] for _, prefix, _ in SCENES])
        if "run" in wanted:
            take_page(folder, PICTURES / "page.png")
        if "tune" in wanted:
            take_page(folder, PICTURES / "study.png", "study")
        if "changed" in wanted:
            slowed = Path(temporary) / "slowed"
            slowed.mkdir()
            shutil.copy(SLOWED, slowed)
            record(["steptime", "run", "--", "python", SLOWED.name], slowed)
            take_page(slowed, PICTURES / "changed.png")


def main() -> int:
    """Record what is asked for; draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "wanted", nargs="*", default=WANTED, help=f"what to record: {', '.join(WANTED)} (default)"
    )
    parser.add_argument("--draw", action="store_true", help="draw the recording that is there")
    options = parser.parse_args()
    if not options.draw:
        take_pictures(set(options.wanted))
    MOVIE.write_text(draw(list(frames())), encoding="utf-8")
    print(f"{MOVIE.relative_to(ROOT)}: {MOVIE.stat().st_size / 1000:.0f} kB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
