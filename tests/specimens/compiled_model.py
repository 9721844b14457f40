"""A compiled model; its forward is slow, and so is its first call, which compiles."""

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@torch.library.custom_op("specimen::slow_copy", mutates_args=())
def slow_copy(x: Tensor) -> Tensor:
    time.sleep(0.010)
    return x.clone()


slow_copy.register_fake(torch.empty_like)
slow_copy.register_autograd(lambda ctx, gradient: gradient)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return slow_copy(self.layers(x))


torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.compile(Net(), backend="aot_eager")
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
