"""Runs cells in a shell of IPython, as a notebook does: `cells.py OUT`.

What each cell gave, showed and raised goes to OUT, by its number.
"""

import json
import sys
from pathlib import Path

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

DEFINE = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    def forward(self, x):
        for _ in range(3):
            h = self.layers(x)
        return h

torch.manual_seed(0)
model, criterion = Model(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
"""
TRAIN = """\
%%steptime --peak fp32=0.5

for step in range(60):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    value = loss.item()
value
"""
CELLS = (
    DEFINE,
    "%load_ext steptime",
    TRAIN,
    "%steptime last",
    "%%steptime\nfor step in range(3):\n    value = step\nraise ValueError('of the cell')",
    "%%steptime\nraise KeyboardInterrupt",
    "%%steptime --count\nnever = 1",
    "%%steptime --store elsewhere\n%%time\nwith_time = 1",
    "%%time\n%%steptime\nbelow = 1",
    "%steptime 1999",
    "%unload_ext steptime",
    "%%steptime\nnever = 2",
    "get_ipython().run_cell('%reload_ext steptime')",
    "get_ipython().run_cell_magic('steptime', '', 'programmatic = 1')",
    "%%steptime\nimport asyncio\nawait asyncio.sleep(0)\nawaited = 1",
    TRAIN.replace("--peak fp32=0.5", "--profile 20"),
)


def main(target):
    shell = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher(parent=shell)
    found = {}
    for number, cell in enumerate(CELLS, start=1):
        shell.display_pub.outputs.clear()
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        found[number] = {
            "count": result.execution_count,
            "result": repr(result.result),
            "shown": [output["data"] for output in shell.display_pub.outputs],
            "error": None if error is None else [type(error).__name__, str(error)],
        }
    names = [
        name
        for name in ("never", "with_time", "below", "programmatic", "awaited")
        if name in shell.user_ns
    ]
    found["names"] = {name: shell.user_ns[name] for name in names}
    found["hooks"] = [type(one).__name__ for one in sys.meta_path]
    Path(target).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
