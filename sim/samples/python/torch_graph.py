#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A captured CUDA graph fed by DataLoader workers through pinned memory; on SIGUSR1 the
graph is replayed on a kept input and its result must be the same to the bit."""
import os
import signal
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH, WIDTH, LAYERS = 8, 4096, 32
state = {"verify": False, "end": False}


def ask(number, _frame):
    state["verify"] = True
    state["end"] = number == signal.SIGUSR2


class Numbers(Dataset):
    """Rows that follow from their index, so that a lost or torn batch shows."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((WIDTH,), float(index % 251)), index


def ignore_signals(_worker):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def capture(model, static_input):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(static_input)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = model(static_input)
    return graph, output


def main():
    signal.signal(signal.SIGUSR1, ask)
    signal.signal(signal.SIGUSR2, ask)
    # The workers are forked before CUDA starts: they hold nothing of the GPU.
    loader = DataLoader(Numbers(), batch_size=BATCH, num_workers=2, persistent_workers=True,
                        worker_init_fn=ignore_signals, pin_memory=False)
    batches = iter(loader)
    next(batches)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16)
              for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers).cuda().eval()
    kept = torch.randn(BATCH, WIDTH).pin_memory()
    pinned = torch.empty(BATCH, WIDTH, pin_memory=True)
    static_input = torch.empty(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    static_input.copy_(kept)
    graph, output = capture(model, static_input)
    graph.replay()
    torch.cuda.synchronize()
    expected = output.clone()
    turns = bad = 0
    print(f"ready pid={os.getpid()} torch={torch.__version__} "
          f"bytes={torch.cuda.memory_allocated()}", flush=True)
    while True:
        try:
            rows, index = next(batches)
        except StopIteration:
            batches = iter(loader)
            continue
        bad += int((rows[:, 0] != (index % 251)).sum())
        pinned.copy_(rows)
        static_input.copy_(pinned, non_blocking=True)
        graph.replay()
        torch.cuda.synchronize()
        turns += 1
        if state["verify"]:
            state["verify"] = False
            static_input.copy_(kept)
            graph.replay()
            torch.cuda.synchronize()
            graph_bad = int((output != expected).sum().item())
            print(f"verify counter={turns} bad={bad} graph_bad={graph_bad} pid={os.getpid()}",
                  flush=True)
            if state["end"]:
                return
        time.sleep(0.002)


if __name__ == "__main__":
    main()
