"""Shows what a script can see of its imports and of torch's functions that load and save."""

import functools
import hashlib
import importlib
import inspect
import io
import os
import pickle
import sys
import tempfile
import traceback
import warnings

folder = tempfile.mkdtemp()
for name, text in {
    "broken": "import json\nraise ValueError('theirs')\n",
    "outer": "import broken\n",
    "torn": "def f(:\n",
    "warns": "import warnings\nwarnings.warn('theirs', stacklevel=2)\n",
}.items():
    with open(os.path.join(folder, f"{name}.py"), "w") as file:
        file.write(text)
sys.path.insert(0, folder)


def show(act):
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            act()
        print([(os.path.basename(w.filename), w.lineno) for w in caught])
    except Exception:
        print(traceback.format_exc().replace(folder, "FOLDER"))


def by_statement(name):
    exec(f"import {name}", {})


for name in ("nothing_of_this_name", "broken", "outer", "torn", "warns", "os.nothing"):
    for act in (by_statement, importlib.import_module):
        sys.modules.pop(name, None)
        show(functools.partial(act, name))

import torch  # noqa: E402
from torch import nn  # noqa: E402

model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
file = io.BytesIO()
torch.save({"model": model, "state": model.state_dict()}, file)
print("saved", len(file.getvalue()))
file.seek(0)
found = torch.load(file, weights_only=False)
print(hashlib.sha256(pickle.dumps(sorted(found["state"]))).hexdigest())
for function in (
    *(torch.load, torch.save, nn.Module.__init__, nn.Module.apply, nn.Module.load_state_dict),
    *(nn.Linear.reset_parameters, torch.optim.Optimizer.__init__, torch.utils.data.DataLoader),
):
    print(function.__qualname__, inspect.signature(function), function.__module__)
    assert pickle.loads(pickle.dumps(function)) is function
show(lambda: nn.Linear(2))
show(lambda: nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3)}))
show(lambda: torch.load(io.BytesIO(b"no checkpoint")))
show(lambda: torch.save(lambda: None, io.BytesIO()))
show(lambda: torch.utils.data.DataLoader([1], batch_size=0))

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = [torch.load, nn.Module.apply, functools.partial(torch.save, {})]
for _ in range(30):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
assert len(pickle.loads(pickle.dumps(kept))) == 3  # also after the first step
show(functools.partial(importlib.import_module, "broken"))
