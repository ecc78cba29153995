"""``python -m fegsam.bench.fresh_process``: one run in a process of its own, for its time from
nothing and its peak memory.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import fegsam as fg
from fegsam.bench.problems import STEP_SIZE, BenchSetting, make_problem


def peak_bytes() -> int:
    """The most memory this process has held.

    On Linux `ru_maxrss` starts from the parent's, so there the kernel's account of this program
    alone is read; elsewhere (macOS) `ru_maxrss` is right, and in bytes.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(
            int(line.split()[1]) * 1024
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-agents", type=int, required=True)
    parser.add_argument("--num-steps", type=int, required=True)
    arguments = parser.parse_args()
    setting = BenchSetting(num_agents=arguments.num_agents)

    began = time.perf_counter()
    fg.run(
        *make_problem(setting),
        step_size=STEP_SIZE,
        sync_period=setting.sync_period,
        num_steps=arguments.num_steps,
        record=np.array([arguments.num_steps]),
        engine=fg.engines.Cpu(threads=1),
    )
    print(json.dumps({"run_seconds": time.perf_counter() - began, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
