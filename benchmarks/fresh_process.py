"""One run in a process of its own: the peak memory it needs, or how long it takes from nothing to a result.

Run by `speed.py`; prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import fegsam as fg
from problems import garnet_federation


def peak_bytes() -> int:
    """The most memory this process has held.

    On Linux `ru_maxrss` starts from the parent's, so there the kernel's account of this program alone is read;
    elsewhere (macOS) `ru_maxrss` is right, and in bytes.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-agents", type=int, required=True)
    parser.add_argument("--num-steps", type=int, required=True)
    parser.add_argument("--sync-period", type=int, default=10)
    arguments = parser.parse_args()

    began = time.perf_counter()
    fg.run(
        garnet_federation(arguments.num_agents),
        fg.QLearning(),
        step_size=0.1,
        sync_period=arguments.sync_period,
        num_steps=arguments.num_steps,
        record=np.array([arguments.num_steps]),
        engine=fg.engines.Cpu(threads=1),
    )
    print(json.dumps({"run_seconds": time.perf_counter() - began, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
