"""Healthy loop; half-way somebody else's programs start, three for two cores, and stay.

The step time about doubles. With `--quiet` nobody starts.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

BURN = "import time; end = time.time() + 60\nwhile time.time() < end: pass"
SECONDS = 12


def start_neighbors():
    # Through a shell that ends at once: they must not count as processes of this job.
    command = f'"{sys.executable}" -I -S -c "{BURN}" & echo $!'
    pids = []
    for _ in range(3 * os.cpu_count() // 2):
        with subprocess.Popen(
            ["/bin/sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True
        ) as shell:
            pids.append(int(shell.stdout.readline()))
    return pids


def main():
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(512, 256), torch.randn(512, 256)
    neighbors, num_steps, at = [], 0, 0
    began = time.time()
    try:
        while time.time() < began + SECONDS:
            if not args.quiet and not neighbors and time.time() > began + SECONDS / 2:
                neighbors, at = start_neighbors(), num_steps
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            num_steps += 1
    finally:
        for pid in neighbors:
            os.kill(pid, signal.SIGKILL)
    print(f"steps {num_steps} changed {at}")


if __name__ == "__main__":
    main()
