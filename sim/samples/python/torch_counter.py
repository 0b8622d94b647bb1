#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A PyTorch program that counts on the GPU and keeps weights there; SIGUSR1: both verified."""
import os
import signal
import sys
import time

import torch

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 512
state = {"verify": False, "end": False}


def ask(number, _frame):
    state["verify"] = True
    state["end"] = number == signal.SIGUSR2


def main():
    signal.signal(signal.SIGUSR1, ask)
    signal.signal(signal.SIGUSR2, ask)
    torch.manual_seed(7)
    weights = torch.randint(-(2**31), 2**31 - 1, (MIB << 18,), dtype=torch.int32, device="cuda")
    expected = weights.to(torch.int64).sum().item()
    copy = weights[:: 1 << 16].cpu()
    counter = torch.zeros((), dtype=torch.int64, device="cuda")
    count = 0
    torch.cuda.synchronize()
    print(f"ready pid={os.getpid()} torch={torch.__version__} bytes={weights.nbytes}", flush=True)
    while True:
        counter += 1
        count += 1
        torch.cuda.synchronize()
        if state["verify"]:
            state["verify"] = False
            bad = int(weights.to(torch.int64).sum().item() != expected)
            bad += int((weights[:: 1 << 16].cpu() != copy).sum().item())
            bad += int(counter.item() != count)
            print(f"verify counter={counter.item()} bad={bad} pid={os.getpid()}", flush=True)
            if state["end"]:
                return
        time.sleep(0.002)


if __name__ == "__main__":
    main()
