"""Mixed precision loop with GradScaler: each tenth step overflows and is skipped."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=("sgd", "fused_adamw"), default="sgd")
parser.add_argument("--overflow-at", type=int, default=5, help="of each ten steps")
args = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
if args.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

for step in range(40):
    x, y = torch.randn(8, 16), torch.randn(8, 1)
    loss = nn.functional.mse_loss(model(x), y)
    if step % 10 == args.overflow_at:
        loss = loss * 1e38  # times the scale: infinite
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    time.sleep(0.010)  # a costly look at the gradients
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(f"scale {scaler.get_scale()} loss {loss.item()!r}")
