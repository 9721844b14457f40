"""with_mounts.py FOLDER: a child inside a namespace that has odd mounts of its own.

Mounts a disk in FOLDER/disk, another in it, a read-only one, and a file over a file; then a child
writes to all of them, and to a pipe and a file system of the kernel's beside them. Prints JSON:
what the child said, what stayed, what was listed.
"""

import json
import os
import sys
from pathlib import Path

from end_to_end.contained import require, run, told
from steptime.isolate import kernel
from steptime.isolate.left.writes import tried_writes
from steptime.isolate.overlay.namespaces import enter_namespaces
from steptime.isolate.tiers import Tier


def main(folder: Path) -> None:
    enter_namespaces(has_own_mounts=True, has_own_network=False, has_own_processes=False)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    for name in ("disk", "disk/inner", "fixed"):
        (folder / name).mkdir(parents=True)
        kernel.mount("test", str(folder / name), "tmpfs")
        (folder / name / "file").write_text("as it was")
    kernel.make_read_only(str(folder / "fixed"))
    for name in ("one", "other"):
        (folder / name).write_text(name)
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (folder / "queues").mkdir()
    kernel.mount("mqueue", str(folder / "queues"), "mqueue")
    kernel.mount(str(folder / "other"), str(folder / "one"), None, kernel.MS_BIND)
    places = ("disk/file", "disk/inner/file", "fixed/file", "one", "disk/new")
    script = "; ".join(f"echo x >> {place} && echo {place}" for place in places)
    script += "; touch queues/made; echo x | dd of=pipe oflag=nonblock conv=notrunc"
    within = require(Tier.ISOLATED)
    run(folder, "sh", "-c", f"({script}) 2>/dev/null; cat one", within=within)
    stayed = {place: (folder / place).read_text() for place in places[:-1]}
    result = {
        "out": told(folder)[0].split("\n"),
        "stayed": stayed,
        "is_new_there": (folder / "disk" / "new").exists(),
        "came_out": os.read(reader, 10).decode(),
        "queues": os.listdir(folder / "queues"),
        "tried": [os.path.relpath(path, folder) for path in tried_writes(folder / "trial")],
        "reasons": within.reasons,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
