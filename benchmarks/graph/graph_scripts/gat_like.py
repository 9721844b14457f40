"""A graph attention network on sampled neighbors of a large graph."""

import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATConv

NUM_NODES, NUM_EDGES, EPOCHS = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
sources = (NUM_NODES * torch.rand(NUM_EDGES) ** 3).long().clamp(max=NUM_NODES - 1)
y = torch.randint(16, (NUM_NODES,))
x = torch.randn(NUM_NODES, 100) + F.one_hot(y, 100)
data = Data(x=x, y=y, edge_index=torch.stack([sources, torch.randint(NUM_NODES, (NUM_EDGES,))]))
train = torch.rand(NUM_NODES) < 0.2
loader = NeighborLoader(
    data, num_neighbors=[10, 10], input_nodes=train, batch_size=512, shuffle=True,
    num_workers=int(sys.argv[4]),
)  # fmt: skip


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GATConv(100, 16, heads=4), GATConv(64, 16)

    def forward(self, x, edge_index):
        return self.second(F.elu(self.first(x, edge_index)), edge_index)


model = GAT()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(EPOCHS):
    began, busy, right, seen = time.perf_counter(), time.process_time(), 0, 0
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        target = batch.y[: batch.batch_size]
        loss = F.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += int((out.argmax(1) == target).sum())
        seen += batch.batch_size
    took, worked = time.perf_counter() - began, time.process_time() - busy
    print(f"epoch {epoch} {took:.2f} s {worked:.2f} CPU-s accuracy {right / seen:.3f}", flush=True)
