# Two ranks that both train on all samples: nobody gave the loader a DistributedSampler.
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
loader = DataLoader(data, batch_size=8, shuffle=True)
for _ in range(3):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
