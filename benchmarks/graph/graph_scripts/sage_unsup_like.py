"""GraphSAGE without labels: ends of edges are alike, as PyG's `graph_sage_unsup.py` trains it."""

import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch_geometric.data import Data
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.nn import GraphSAGE

NUM_NODES, NUM_EDGES, EPOCHS = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
group = torch.randint(32, (NUM_NODES,))
order = group.argsort()
near = torch.randint(-NUM_NODES // 64, NUM_NODES // 64, (NUM_EDGES,))
place = torch.randint(NUM_NODES, (NUM_EDGES,))
ends = torch.stack([order[place], order[(place + near).clamp(0, NUM_NODES - 1)]])
data = Data(x=torch.randn(NUM_NODES, 64) + F.one_hot(group, 64), edge_index=ends)
loader = LinkNeighborLoader(
    data, batch_size=256, shuffle=True, neg_sampling_ratio=1.0, num_neighbors=[10, 10],
    num_workers=int(sys.argv[4]),
)  # fmt: skip
model = GraphSAGE(64, hidden_channels=64, num_layers=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(EPOCHS):
    began, busy, total = time.perf_counter(), time.process_time(), 0.0
    for batch in loader:
        h = model(batch.x, batch.edge_index)
        score = (h[batch.edge_label_index[0]] * h[batch.edge_label_index[1]]).sum(-1)
        loss = F.binary_cross_entropy_with_logits(score, batch.edge_label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * batch.edge_label.numel()
    took, worked = time.perf_counter() - began, time.process_time() - busy
    mean = total / NUM_EDGES / 2
    print(f"epoch {epoch} {took:.2f} s {worked:.2f} CPU-s loss {mean:.3f}", flush=True)
