# Resumes without telling the loader: each resumed run begins with the first epoch's order.
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 4)
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 4)
start = 0
if "--resume" in sys.argv:
    saved = torch.load("ck.pt")
    model.load_state_dict(saved["model"])
    start = saved["epoch"] + 1
for epoch in range(start, 3):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
    torch.save({"model": model.state_dict(), "epoch": epoch}, "ck.pt")
