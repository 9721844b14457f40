"""Trains while the disk that holds the store is full, then is not, then is again.

    full.py FOLDER    on the small disk; at most four mebibytes are written there

Full after 20 steps, not after 220, and for good after 260; 460 in all.
"""

import contextlib
import os
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
MOST = 4 << 20
ballast = os.path.join(sys.argv[1], "ballast")


def steps(count):
    for _ in range(count):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item().hex()


def fill():
    # The small disk holds half a mebibyte. Never more: on another disk this would not end.
    with open(ballast, "ab", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while file.tell() < MOST and file.write(b"x" * size) == size:
                    pass


def steps_and_a_pause(count):
    steps(count - 1)
    time.sleep(0.25)
    steps(1)


steps_and_a_pause(20)
fill()  # what was begun of the last page can still be written
for _ in range(10):
    steps_and_a_pause(20)
os.remove(ballast)
steps_and_a_pause(20)
steps_and_a_pause(20)
fill()
print(steps(200))
