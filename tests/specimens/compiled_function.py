"""A compiled function that calls model and loss: the model's own call is compiled away."""

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@torch.library.custom_op("specimen::slow_copy", mutates_args=())
def slow_copy(x: Tensor) -> Tensor:
    time.sleep(0.010)
    return x.clone()


slow_copy.register_fake(torch.empty_like)
slow_copy.register_autograd(lambda ctx, gradient: gradient)

torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="aot_eager")
def compute_loss(x, y):
    return F.cross_entropy(slow_copy(model(x)), y)


for x, y in loader:
    optimizer.zero_grad()
    loss = compute_loss(x, y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
