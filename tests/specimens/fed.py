"""Another process makes the batches, more slowly than they are trained on, and sends them."""

import multiprocessing
import random
import time

import torch
from torch import nn

STEPS, ROWS, SIZE, CLASSES = 24, 8, 16, 4


def feed(queue):
    chance = random.Random(0)
    for _ in range(STEPS):
        time.sleep(0.030)
        rows = [[chance.gauss(0, 1) for _ in range(SIZE)] for _ in range(ROWS)]
        queue.put((rows, [chance.randrange(CLASSES) for _ in range(ROWS)]))


torch.manual_seed(0)
model = nn.Linear(SIZE, CLASSES)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
forking = multiprocessing.get_context("fork")
queue = forking.Queue(maxsize=1)
feeder = forking.Process(target=feed, args=(queue,), name="feeder", daemon=True)
feeder.start()

for step in range(STEPS):
    rows, labels = queue.get()
    loss = nn.functional.cross_entropy(model(torch.tensor(rows)), torch.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 0:
        print(f"step {step} loss {loss.item()!r}")
feeder.join()
