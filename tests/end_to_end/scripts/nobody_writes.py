"""nobody_writes.py FOLDER: as nobody, changes FOLDER/own/kept in a layer, and prints it."""

import os
import sys
from pathlib import Path

from steptime.isolate import kernel
from steptime.isolate.overlay.layers import build_root
from steptime.isolate.overlay.namespaces import enter_namespaces

NOBODY, PR_SET_DUMPABLE = 65534, 4


def main(folder: Path) -> None:
    trial = folder / "own" / "trial"
    trial.mkdir(parents=True)
    (folder / "own" / "kept").write_text("kept")
    for place in (folder / "own", folder / "own" / "kept", trial):
        os.chown(place, NOBODY, NOBODY)
    folder.chmod(0o755)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.prctl(PR_SET_DUMPABLE, 1)  # as after an exec: else its own /proc is root's
    enter_namespaces(has_own_mounts=True, has_own_network=False, has_own_processes=False)
    layers = build_root(str(trial), 1 << 20, has_own_network=False, share_network=False)
    with open(f"{layers.root}{folder}/own/kept", "r+") as file:
        file.seek(0, os.SEEK_END)
        file.write("more")
        file.seek(0)
        print(file.read(), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
