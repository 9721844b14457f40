"""What a proof holds for: the files that a command names, and the machine it ran on.

In: an argv and the folder it is given in. Out: a Script and a Fingerprint.
"""

from __future__ import annotations

from pathlib import Path

from steptime.launch.origin import read_machine
from steptime.launch.script_files import hash_script
from steptime.tune.values.recipe_values import Fingerprint, Script


def describe_script(command: tuple[str, ...], *, folder: Path) -> Script:
    """The command, with one hash over the text files it names."""
    files, found = hash_script(command, folder=folder)
    return Script(command=command, files=files, hash=found)


def describe_machine(*, device: str | None = None, torch_version: str | None = None) -> Fingerprint:
    """This machine; device and torch as the training itself saw them."""
    machine = read_machine()
    return Fingerprint(
        cpu=machine.cpu,
        num_cores=machine.num_cores,
        memory_bytes=machine.memory_bytes,
        device=device,
        torch_version=torch_version,
    )
