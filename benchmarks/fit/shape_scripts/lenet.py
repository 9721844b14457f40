"""LeNet with the widths of the Caffe example (20 and 50 channels, 500 units), on made-up digits."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 20, 5),
    nn.MaxPool2d(2),
    nn.Conv2d(20, 50, 5),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(800, 500),
    nn.ReLU(),
    nn.Linear(500, 10),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for _ in range(20):
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    optimizer.zero_grad()
    criterion(model(images), labels).backward()
    optimizer.step()
