"""Small network on a TensorDataset, which the loader takes apart row by row and stacks again."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, y = torch.randn(5000, 32), torch.randint(4, (5000,))
    train, test = random_split(TensorDataset(x, y), [4096, 904])
    loader = DataLoader(train, batch_size=256, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = [(model(x).argmax(1) == y).sum() for x, y in DataLoader(test, batch_size=256)]
    print(f"loss {loss.item()!r} right {sum(right).item()}")


if __name__ == "__main__":
    main()
