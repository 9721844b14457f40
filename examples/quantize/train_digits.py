"""Trains a network on scanned digits, and writes its weights and its data.

    python train_digits.py

The 1,797 digits come with scikit-learn (E. Alpaydin, C. Kaynak, UCI, 1998: 8 x 8 pixels).
Out: `ckpt.pt`, and `train.npz` and `test.npz` with inputs `x` (num, 1, 8, 8) and labels `y`.
"""

import numpy as np
import torch
from model import build
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

NUM_TRAIN, EPOCHS, BATCH = 1000, 20, 50


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = (digits.images[:, None] / 16).astype(np.float32)
    y = digits.target
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(EPOCHS):
        for rows in torch.randperm(NUM_TRAIN).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(inputs[NUM_TRAIN:]).argmax(dim=1) == labels[NUM_TRAIN:]
    torch.save(model.state_dict(), "ckpt.pt")
    np.savez("train.npz", x=x[:NUM_TRAIN], y=y[:NUM_TRAIN])
    np.savez("test.npz", x=x[NUM_TRAIN:], y=y[NUM_TRAIN:])
    print(f"{right.float().mean():.1%} of {len(right)} digits are read right")


if __name__ == "__main__":
    main()
