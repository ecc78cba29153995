"""``python -m fegsam.bench.fresh_process``: time and peak memory of one run in a new process.

It prints one JSON object.
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
    """The peak memory of this process.

    On Linux `ru_maxrss` starts from the parent's value, so we read the kernel's figure for this
    program alone. Elsewhere (macOS) `ru_maxrss` is right, and in bytes.
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
