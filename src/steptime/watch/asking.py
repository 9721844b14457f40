"""Asks the processes of a run that goes on, and takes their answers.

In: a run's folder. Out: the processes that can be asked, and what each of them wrote. The question
is a file that only one asker can make; who makes it takes it away again. The guest's side is in
`guest/asked`, and `app.ask` knows what the answers mean.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from steptime.core.codec import decode, from_json
from steptime.errors import DamagedRunError, NotAnsweredError, StoreError
from steptime.measure.values.model.profiled import FOLDER as PROFILES
from steptime.measure.wall.rank_progress import RankProgress, open_rank
from steptime.measure.wall.trainings import FoundTraining, trainings_in
from steptime.record import files
from steptime.record.lines import LineReader
from steptime.record.live import questions
from steptime.record.live.questions import Question
from steptime.record.regular_file import read_regular
from steptime.watch.host.training_processes import (
    Sighting,
    TrainingProcess,
    read_training_processes,
    sight,
)

_AHEAD_S = 1.0
"""Ranks that train together begin with the same update: one that all of them have still before
them, though they find the question up to 0.2 s and a step later than each other."""

_MIN_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedProcess:
    """A process that steps, and can be asked.

    Attributes:
        stream: name of its rank's file, without the ending.
        rank: its rank.
        pid: its process id, where it runs.
        training: the number of its training.
        num_updates: updates that are on disk.
        usual_s: the usual time of an update; None where that is not known [s].
        process: the same process, to see whether it still exists; None if nothing describes it.
        answers: what it can be asked; empty where its guest is an older one.
    """

    stream: str
    rank: int
    pid: int
    training: int
    num_updates: int
    usual_s: float | None
    process: TrainingProcess | None
    answers: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, as far as can be seen from here."""
        return self.process is not None and sight(self.process) is Sighting.GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedHead:
    pid: int
    started: int | None = None
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one process wrote: facts that depend on the question, or why there are none."""

    id: str
    what: str
    pid: int
    first: int
    num_updates: int
    missing: str | None = None
    facts: dict[str, object] | None = None


def find_processes(folder: Path) -> tuple[AskedProcess, ...]:
    """Return the processes of a run that step and have not ended, in the order of ranks.

    Raises:
        OSError: a file cannot be read.
    """
    trainings = trainings_in(folder)
    described = {(one.pid, one.started): one for one in read_training_processes(folder)}
    found = []
    for path in sorted(folder.glob(files.RANKS)):
        head, progress = _read(path)
        own = next((one for one in trainings if head and head.pid in one.pids), None)
        if head is None or progress is None or own is None or progress.has_ended:
            continue
        process = described.get((head.pid, head.started))
        one = _describe(path, head, progress, own, process)
        if not one.is_gone:
            found.append(one)
    return tuple(sorted(found, key=lambda one: (one.training, one.rank, one.pid)))


def _read(path: Path) -> tuple[_AskedHead | None, RankProgress | None]:
    line = LineReader(path).read_head()
    progress = open_rank(path, now_s=0.0)
    if line is None or progress is None:
        return None, None
    progress.read(0.0)
    with suppress(DamagedRunError):
        return from_json(_AskedHead, line), progress
    return None, None


def _describe(
    path: Path,
    head: _AskedHead,
    progress: RankProgress,
    own: FoundTraining,
    process: TrainingProcess | None,
) -> AskedProcess:
    return AskedProcess(
        stream=questions.stream_of(str(path)),
        rank=own.rank_of.get(head.pid, progress.rank),
        pid=head.pid,
        training=own.training.number,
        num_updates=progress.num_updates,
        usual_s=progress.usual_s,
        process=process,
        answers=head.answers,
    )


def make_question(
    processes: Sequence[AskedProcess], what: str, *, num_steps: int, timeout_s: float
) -> Question:
    """Return the question to these processes; several of them begin with the same update."""
    begin_at = 0
    if len(processes) > 1 and what != questions.MEMORY:
        usual_s = min((one.usual_s for one in processes if one.usual_s), default=_AHEAD_S)
        ahead = max(_MIN_AHEAD, round(_AHEAD_S / usual_s) + 1)
        begin_at = max(one.num_updates for one in processes) + ahead
    return Question(
        id=secrets.token_hex(8),
        what=what,
        num_steps=num_steps,
        begin_at=begin_at,
        until_unix_s=time.time() + timeout_s,
        streams=tuple(one.stream for one in processes),
    )


def put_question(folder: Path, question: Question) -> None:
    """Write the question, and make the folder for its answers.

    Raises:
        NotAnsweredError: another question is under way.
        StoreError: the folder of the run cannot be written.
    """
    path = folder / questions.QUESTION
    try:
        _make_places(folder, question)
        if not _create(path, question):
            _clear_old(path)
            if not _create(path, question):
                raise _under_way(path)
        _clear_answers(folder, lambda name: name != question.id)
    except NotAnsweredError:
        _clear_answers(folder, lambda name: name == question.id)
        raise
    except OSError as error:
        raise StoreError(
            f"no question can be put to this run: {error}.",
            hint="Ask as the user who started it, on a machine that may write to its folder.",
        ) from error


def take_back(folder: Path, question: Question) -> None:
    """Take the question away with its answers; processes that have not begun leave it alone."""
    path = folder / questions.QUESTION
    known = _read_question(path)
    with suppress(OSError):
        if known is not None and known.id == question.id:
            path.unlink()
    with suppress(OSError):
        _clear_answers(folder, lambda name: name == question.id)
        (folder / questions.ANSWERS).rmdir()


def read_answer(folder: Path, question: Question, process: AskedProcess) -> Answer | None:
    """Return what a process answered; None as long as it has not.

    Raises:
        DamagedRunError: the file holds something else.
        OSError: it cannot be read.
    """
    name = questions.answer_file(process.stream)
    path = folder / questions.ANSWERS / question.id / name
    try:
        text = read_regular(path, max_bytes=questions.MAX_ANSWER_BYTES)
    except FileNotFoundError:
        return None
    return decode(Answer, text, where=str(path))


# -- the files


def _create(path: Path, question: Question) -> bool:
    """Make the file of the question; return whether there was none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, question.text.encode())
    finally:
        os.close(descriptor)
    return True


def _read_question(path: Path) -> Question | None:
    try:
        text = read_regular(path, max_bytes=questions.MAX_QUESTION_BYTES)
    except OSError:
        return None
    return questions.parse_question(text)


def _clear_old(path: Path) -> None:
    """Take away a question whose asker was killed: its time is over, or it cannot be read."""
    known = _read_question(path)
    if known is None or known.until_unix_s < time.time():
        path.unlink(missing_ok=True)
    else:
        raise _under_way(path)


def _under_way(path: Path) -> NotAnsweredError:
    known = _read_question(path)
    what = "a question" if known is None else f"a question about its {known.what}"
    left_s = 0.0 if known is None else max(0.0, known.until_unix_s - time.time())
    return NotAnsweredError(
        f"{what} is under way in this run, for {left_s:.0f} s at most.",
        hint="Ask again afterwards; a run answers one question at a time.",
    )


def _make_places(folder: Path, question: Question) -> None:
    """Make the folders that the processes write to, for the user to whom the run belongs.

    The folder may be another user's where root asks, so nothing here follows a link.
    """
    owner = folder.stat()
    _make_folder(questions.ANSWERS, folder, None, owner)
    if question.what == questions.PROFILE:
        _make_folder(PROFILES, folder, None, owner)
    with _opened(folder / questions.ANSWERS) as shelf:
        _make_folder(question.id, folder, shelf, owner)


def _make_folder(name: str, folder: Path, parent: int | None, owner: os.stat_result) -> None:
    """Make a folder, in the run's folder or in an open one, unless it is there."""
    path = folder / name if parent is None else name
    try:
        os.mkdir(path, dir_fd=parent)
    except FileExistsError:
        return
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """Open a folder past no link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _clear_answers(folder: Path, is_meant: Callable[[str], bool]) -> None:
    """Take away the answers to questions that are meant: ours, or those of killed askers."""
    with _opened(folder / questions.ANSWERS) as shelf:
        for name in os.listdir(shelf):
            if questions.is_question_id(name) and is_meant(name):
                with suppress(OSError):
                    _remove(name, shelf)


def _remove(name: str, shelf: int) -> None:
    with _opened(name, shelf) as place:
        for file in os.listdir(place):
            os.unlink(file, dir_fd=place)
    os.rmdir(name, dir_fd=shelf)
