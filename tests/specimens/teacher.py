"""Distillation: a slow teacher in eval mode, without gradients, inside every step."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Teacher(nn.Linear):
    def forward(self, x):
        time.sleep(0.020)
        return super().forward(x)


class Student(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return super().forward(x)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(200, 16)), batch_size=8, shuffle=True)
teacher, student = Teacher(16, 4).eval(), Student(16, 4)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

for (x,) in loader:
    with torch.no_grad():
        wanted = teacher(x).softmax(1)
    loss = F.cross_entropy(student(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
