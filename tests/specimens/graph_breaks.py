"""Compiled model that prints in its forward, which breaks its graph in two."""

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
        self.encoder, self.head = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        hidden = torch.relu(self.encoder(x))
        print(f"hidden {hidden.shape}")  # ailment
        return slow_copy(self.head(hidden))


torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
compiled = torch.compile(model, backend="aot_eager")
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(compiled(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
