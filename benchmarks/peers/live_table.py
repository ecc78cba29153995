"""Q-learning on the frozen lake in every package, as one table.

    python benchmarks/peers/live_table.py [--turns 3] [--python PATH ...]

The packages pin other versions of each other's requirements, so each script runs in the first of
the interpreters that has its package. The scripts run in turn; the table has the fastest turns, in
microseconds of processor time for each step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = {
    "live_task.py": ("gymnasium", "gymnasium"),
    "live_with_fegsam.py": ("fegsam", "fegsam[data,gymnasium]"),
    "live_with_mushroom.py": ("mushroom_rl", "mushroom-rl"),
    "live_with_tianshou.py": ("tianshou", "tianshou"),
    "live_with_d3rlpy.py": ("d3rlpy", "d3rlpy"),
}
"""The module that each script needs, and the name that pip knows it by."""


def interpreter(module: str, pythons: list[str]) -> str | None:
    """The first interpreter that can import a module."""
    for python in pythons:
        asked = subprocess.run([python, "-c", f"import {module}"], capture_output=True)
        if asked.returncode == 0:
            return python
    return None


def rows(script: str, python: str) -> list[dict]:
    """What a script printed, and its last words if it failed."""
    path = Path(__file__).with_name(script)
    done = subprocess.run([python, str(path)], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"package"')]
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        found.append({"package": SCRIPTS[script][1], "did": f"fails: {' '.join(said)[:60]}"})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--python", nargs="*", default=[], help="interpreters beside this one")
    given = parser.parse_args()
    pythons = [sys.executable, *given.python]
    chosen = {script: interpreter(module, pythons) for script, (module, _) in SCRIPTS.items()}
    best: dict[tuple[str, str], dict] = {}
    for _ in range(given.turns):
        for script, python in chosen.items():
            for row in rows(script, python) if python else []:
                key = row["package"], row["did"]
                before = best.get(key, row)
                best[key] = min(before, row, key=lambda each: each.get("microseconds", 0.0))
    print(f"{'package':22}{'what it did':58}{'us a step':>10}{'error of Q':>12}")
    for row in best.values():
        time, error = row.get("microseconds"), row.get("error")
        last = [f"{time:.2f}" if time is not None else "-", f"{error:.2g}" if error else "-"]
        print(f"{row['package']:22}{row['did']:58}{last[0]:>10}{last[1]:>12}")
    for script, (_, name) in SCRIPTS.items():
        if chosen[script] is None:
            print(f"{name:22}is not installed here: pip install {name}")


if __name__ == "__main__":
    main()
