"""What a proof holds for: the files that a command names, and the machine it ran on.

In: an argv and the folder it is given in. Out: a Script and a MachineIdentity.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.launch.origin import read_machine
from steptime.launch.script_files import hash_script
from steptime.record.hidden_words import hide_words
from steptime.tune.values.recipe_values import Script


def describe_script(command: tuple[str, ...], *, folder: Path) -> Script:
    """The command, with one hash over the text files it names."""
    files, found = hash_script(command, folder=folder)
    return Script(command=hide_words(command), files=files, hash=found)


def describe_machine() -> MachineIdentity:
    """This machine as a recipe keeps it: without its name, and without a container's limit."""
    return replace(read_machine(), hostname_hash=None, memory_limit_bytes=None)
