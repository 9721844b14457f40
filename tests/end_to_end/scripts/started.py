"""Takes its time before and between its steps, and says by its own clock what each took."""

import io
import json
import os
import sys
import tempfile
import time

clock, spent = time.perf_counter, {}
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "leisurely.py"), "w") as file:
    file.write("import time\ntime.sleep(0.12)\n")
sys.path.insert(0, folder)


def took(name, began):
    spent[name] = spent.get(name, 0.0) + clock() - began


began = clock()
import leisurely  # noqa: E402, F401
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  the first optimizer would import it

took("imports", began)
began = clock()  # as steptime has it, a data set's time begins where the imports ended
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Data(Dataset):
    def __init__(self):
        time.sleep(0.2)
        self.is_first = True

    def __len__(self):
        return 160

    def __getitem__(self, index):
        if self.is_first:
            time.sleep(0.1)
            self.is_first = False
        return torch.full((8,), index / 160), index % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(0.1)
        self.layer = nn.Linear(8, 2)
        self.apply(self.draw)

    def draw(self, module):
        time.sleep(0.02)

    def forward(self, x):
        return self.layer(x)


class Late:
    """A part of a checkpoint that takes its time to be pickled, and to be restored."""

    def __reduce__(self):
        time.sleep(0.03)
        return restore, ()


def restore():
    time.sleep(0.08)
    return Late()


torch.manual_seed(0)
loader = DataLoader(Data(), batch_size=4)
took("data_set", began)
began = clock()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
took("model", began)
buffer = io.BytesIO()
torch.save({"late": Late()}, buffer)
buffer.seek(0)
began = clock()
torch.load(buffer, weights_only=False)
took("loading", began)

for step, (x, y) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
    if step % 10 == 9:
        began = clock()
        path = os.path.join(folder, f"{step}.pt")
        torch.save({"model": model.state_dict(), "late": Late()}, path)
        took("checkpoint", began)
began = clock()
time.sleep(0.1)
took("after_steps", began)
print(json.dumps({"spent": spent, "loss": loss.item().hex()}))
