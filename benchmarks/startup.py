"""Time from the start of a process to its first result, and peak memory with many agents.

    python benchmarks/startup.py

Each measurement runs in a separate process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time


def fresh_process(*, num_agents: int, num_steps: int, cache: str | None = None) -> dict[str, float]:
    """The JSON object that the process prints; `cache` is its folder for compiled code."""
    command = [
        sys.executable,
        "-m",
        "fegsam.bench.fresh_process",
        f"--num-agents={num_agents}",
        f"--num-steps={num_steps}",
    ]
    environment = os.environ if cache is None else {**os.environ, "NUMBA_CACHE_DIR": cache}
    return json.loads(
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    )


def main() -> None:
    print(
        "Seconds from the start of a process to its first result (in brackets: the run without "
        "imports)"
    )
    with tempfile.TemporaryDirectory() as cache:
        for which in ("first process, empty cache", "second process", "third process"):
            began = time.perf_counter()
            result = fresh_process(num_agents=256, num_steps=1000, cache=cache)
            print(
                f"{which:<28} {time.perf_counter() - began:6.2f}  ({result['run_seconds']:.2f})",
                flush=True,
            )
    print("\nPeak memory of a process, K = 10, 100 states, 5 actions")
    for num_agents in (10**3, 10**6, 10**7):
        peak = fresh_process(num_agents=num_agents, num_steps=10)["peak_bytes"]
        print(f"N={num_agents:<10} {peak / 1e6:8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
