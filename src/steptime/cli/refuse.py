"""What `steptime run` says where nothing was started."""

from __future__ import annotations

import shlex

from steptime.cli.main import attempt
from steptime.cli.output import error_text, say, write_json
from steptime.cli.run import RunOptions
from steptime.core.executable import NotStarted
from steptime.errors import NotFoundError
from steptime.report.document.envelope import Envelope, ErrorItem, enclose


def refuse(options: RunOptions, found: NotStarted) -> int:
    """Say why nothing was started; the exit code a shell gives."""
    name = options.command[0]
    hint = "Check the name, and PATH."
    if name.endswith(".py"):
        hint = f"Name its interpreter: steptime run -- {shlex.join(['python', *options.command])}"
    error = NotFoundError(f"the command `{name}` {found.reason}.", hint=hint)
    say(error_text(error))
    if options.json is not None:
        item = ErrorItem(code=error.code, message=str(error), hint=hint)
        document: Envelope[None] = enclose("run", None, exit_code=found.exit_code, errors=(item,))
        attempt(lambda: write_json(str(options.json), document), tell=say)
    return found.exit_code
