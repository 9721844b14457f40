"""A GNN in PyG whose neighbor sampling, in the training process, takes most of a step."""

import sys
from itertools import islice

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

if len(sys.argv) > 2 and sys.argv[2] == "fused":
    from steptime.graph.loader import NeighborLoader

num_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
torch.manual_seed(0)
torch.set_num_threads(1)
NUM_NODES = 20_000
data = Data(
    x=torch.randn(NUM_NODES, 4),
    y=torch.randint(2, (NUM_NODES,)),
    edge_index=torch.randint(NUM_NODES, (2, 30 * NUM_NODES)),
)
loader = NeighborLoader(data, num_neighbors=[20, 10], batch_size=256, shuffle=True)
model = SAGEConv(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for batch in islice(loader, num_steps):
    out = model(batch.x[:300], batch.edge_index[:, :20].clamp(max=299))[:20]
    loss = torch.nn.functional.cross_entropy(out, batch.y[:20])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
