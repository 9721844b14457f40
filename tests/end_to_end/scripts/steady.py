"""Trains until told to stop, and notes each step in steps.log the moment it has ended.

    steady.py [NUM_STEPS [LAST_ACT]]

The last act is one of the functions below; without one the script ends as scripts do.
"""

import os
import signal
import sys
import threading
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = os.open("steps.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def step(number):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    os.write(log, f"{number} {time.time()}\n".encode())
    time.sleep(0.01)
    return loss.item().hex()


def leave():
    os._exit(5)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def raise_error():
    raise RuntimeError("the last act")


def train_on_in_a_thread():
    """The main thread ends; the interpreter waits for this one."""

    def work():
        own = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
        for _ in range(60):
            own(torch.ones(4)).sum().backward()
            optimizer.step()
            time.sleep(0.01)

    threading.Thread(target=work).start()


if __name__ == "__main__":
    num_steps, *acts = [*sys.argv[1:], "1000000"] if len(sys.argv) == 1 else sys.argv[1:]
    for number in range(int(num_steps)):
        last = step(number)
    print(last, flush=True)
    for act in acts:
        globals()[act]()
