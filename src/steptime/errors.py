"""The errors of Steptime; catch the root to catch them all.

SteptimeError              exit code 1
├── UsageError             2    the command line or an argument is wrong
├── NotFoundError          2    no such run or file
│   └── NotStartedError    126, 127 the command cannot be started
├── BatchRuleError         2    sizes of a batch cannot be together
├── RunsError              2    runs of a training cannot be judged
├── RecipeError            2    a recipe is damaged, foreign or does not fit
├── ScriptFailedError      3    the user's script ended before what was wanted of it
├── StoreError             1    the store cannot be read or written
├── DamagedRunError        1    a run folder is damaged, foreign or of another schema
├── MissingExtraError      2    what was asked for needs packages that are not installed
├── ContainmentError       1    a child cannot be kept from doing harm here
├── DataError              1    data cannot be read, or is not what it was
├── GraphError             2    a graph, or what is asked of it, is not what it must be
├── RankLostError          1    a rank of several is gone, or no longer takes part
├── NotAnsweredError       1    no process of a run that goes on answered a question
├── NoProcError            1    this Linux has no /proc
└── InterruptedByUserError 130  Ctrl-C, before there was anything to report
"""

import shlex
import sys
from pathlib import Path


class SteptimeError(Exception):
    """Root of all errors raised on purpose; `hint` says what to do next."""

    exit_code = 1
    code = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SteptimeError):
    """The command line is wrong."""

    exit_code = 2
    code = "usage"


class NotFoundError(SteptimeError):
    """What was named does not exist."""

    exit_code = 2
    code = "not_found"


class NotStartedError(NotFoundError):
    """The command cannot be started; `exit_code` is what a shell gives: 126 or 127."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 127) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class BatchRuleError(SteptimeError):
    """Sizes of a batch cannot be together; `rule` names what forbids them."""

    exit_code = 2
    code = "batch_rule"

    def __init__(self, message: str, *, rule: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.rule = rule


class RunsError(SteptimeError):
    """Runs of a training cannot be judged; `code` says why."""

    exit_code = 2
    code = "runs"

    def __init__(self, message: str, *, code: str = "runs", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RecipeError(SteptimeError):
    """A recipe cannot be read, written or used."""

    exit_code = 2
    code = "recipe"


class ScriptFailedError(SteptimeError):
    """The user's script ended, or took too long, before it had done what was needed."""

    exit_code = 3
    code = "script_failed"


class StoreError(SteptimeError):
    """The store cannot be read or written."""

    code = "store"


class DamagedRunError(SteptimeError):
    """A run folder cannot be understood."""

    code = "damaged_run"


class MissingExtraError(SteptimeError):
    """An extra of Steptime, or a package that it `needs`, is not installed; the hint says how."""

    exit_code = 2
    code = "missing_extra"

    def __init__(self, message: str, *, hint: str | None = None, needs: str | None = None) -> None:
        if needs is not None:
            hint = f"Install it: {install_command(needs)}{hint or ''}"
        super().__init__(message, hint=hint)


class ContainmentError(SteptimeError):
    """The user's command cannot be run again here without risk to their files."""

    code = "containment"


class DataError(SteptimeError):
    """Data cannot be read, or is damaged; the message names the file and the row."""

    code = "data"


class GraphError(SteptimeError, ValueError):
    """A graph, or what is asked of its sampler, is not what it must be."""

    exit_code = 2
    code = "graph"


class RankLostError(SteptimeError):
    """A rank of several is gone, or did not take part in time; `ranks` are those known to be."""

    code = "rank_lost"

    def __init__(
        self, message: str, *, ranks: tuple[int, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.ranks = ranks


class NotAnsweredError(SteptimeError):
    """No process of a run that goes on answered a question."""

    code = "not_answered"


class NoProcError(SteptimeError):
    """This Linux shows no processes: /proc is not mounted."""

    code = "no_proc"


class InterruptedByUserError(SteptimeError):
    """Ctrl-C ended the command before there was anything to report."""

    exit_code = 130
    code = "interrupted"


def install_command(*words: str) -> str:
    """Return the shell command that installs into this Python with the tool that made it.

    An extra needs no release, because each of these tools sees that Steptime is there already.

    Args:
        words: packages, such as `steptime[data]`, and options of pip.
    """
    home, tool = Path(sys.prefix), "pip install"
    made_by = home / "pyvenv.cfg"
    if (home / "pipx_metadata.json").is_file():
        # `pipx inject` of version 1.7 adds no extra to a package that is there.
        tool = f"pipx runpip {shlex.quote(home.name)} install"
    elif made_by.is_file() and "\nuv = " in made_by.read_text("utf-8", "replace"):
        tool = f"uv pip install --python {shlex.quote(sys.executable)}"
    return f"{tool} {shlex.join(words)}"
