"""A small training whose work is known; the argument says in what way it trains."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

way = sys.argv[1]
torch.manual_seed(0)


class ByNumpy(torch.autograd.Function):
    """A product that no operator of torch's shows."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = (one.detach().numpy() for one in ctx.saved_tensors)
        dy = gradient.numpy()
        return torch.from_numpy(dy @ weight), torch.from_numpy(dy.T @ x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(32, 32)
        self.head = nn.Linear(32, 10)
        ring = torch.sparse_coo_tensor([range(16), [15, *range(15)]], [1.0] * 16, (16, 16))
        self.register_buffer("graph", ring.coalesce() if way == "graph" else None)

    def forward(self, x):
        if self.graph is not None:
            x = self.graph @ x
        if way == "jagged":  # attention asks for sizes that a wrong mode does not have
            x = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 6, 16]))
            heads = x.unflatten(-1, [2, 16]).transpose(1, 2)
            heads = F.scaled_dot_product_attention(heads, heads, heads)
            x = heads.transpose(1, 2).flatten(-2)
            return self.head(torch.relu(self.body(x))).values()
        if way == "numpy":
            return self.head(torch.relu(ByNumpy.apply(x, self.body.weight)))
        return self.head(torch.relu(self.body(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
second = torch.optim.SGD(net.head.parameters(), 0.01)
teacher = Net()
criterion = nn.CrossEntropyLoss()
model = torch.compile(net, backend="eager") if way.startswith("compiled") else net
written = Path("written.txt")
if way == "compiled_once" and written.exists():
    sys.exit()

for _ in range(40):
    for _ in range(2):
        x, y = torch.randn(16, 32), torch.randint(0, 10, (16,))
        if way == "functional":
            out = torch.relu(x @ net.body.weight) @ net.head.weight.T
            out = out + net.head.bias
        else:
            out = model(x)
        loss = criterion(out, y) / 2
        if way == "teacher":
            with torch.no_grad():
                wanted = teacher(x)
            loss = loss + F.mse_loss(out, wanted)
        loss.backward()
    optimizer.step()
    if way == "two_optimizers":
        second.step()
    optimizer.zero_grad()

with written.open("a") as file:
    file.write("once\n")
