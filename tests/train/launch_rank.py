"""One rank of the launch tests: `launch_rank.py MODE FOLDER`; writes what happened to FOLDER/rank_N."""

import os
import signal
import sys
import time
from pathlib import Path

mode, folder = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["RANK"])
log = (folder / f"rank_{rank}").open("a", buffering=1)
got = []


def note(signum, frame):
    got.append(signum)
    log.write(f"{signal.Signals(signum).name}\n")


if mode == "group":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    log.write(f"{total.item():g} {os.environ['LOCAL_RANK']} {os.environ['WORLD_SIZE']} {os.environ['OMP_NUM_THREADS']}\n")
    sys.stdout.write(f"stdout of rank {rank}\n")
elif mode == "fail":
    signal.signal(signal.SIGTERM, note)  # a rank that hangs in a collective does not react either
    (folder / f"listening_{rank}").touch()
    while rank == 1:  # fail only once rank 0 listens to signals
        if (folder / "listening_0").exists():
            sys.exit(2)
        time.sleep(0.02)
    time.sleep(60)
elif mode == "killed":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
elif mode == "interrupt":
    signal.signal(signal.SIGINT, note)
    log.write(f"ready {os.getpid()}\n")
    while not got:
        time.sleep(0.02)
    time.sleep(0.5 * rank)  # writing the checkpoint takes one rank longer
    log.write("checkpoint\n")
    sys.exit(130)
