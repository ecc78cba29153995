"""Three hospitals learn together from their own logs: a server and three nodes on this machine.

The study says what they agree on. Each owner names a log in the node's own file; nothing of it is
sent. The result equals that of one process with all logs.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import fegsam as fg
from fegsam.cli import main as fegsam

STUDY = """
[study]
name = "three-hospitals"
seeds = [7]

[problem]
generator = "private"        # each node has data of its own
states = 5
actions = 2
discount = 0.9

[algorithm]
name = "q_learning"

[run]
num_steps = 2000

[grid]
num_agents = 3
sync_period = 100
step_size = 0.1
"""
FEDERATE = [sys.executable, "-m", "fegsam", "federate"]


def main() -> None:
    ward, treatment = fg.examples.random_walk(5, 0.9), fg.policies.random(5, 2, 3, seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "study.toml").write_text(STUDY, encoding="utf-8")
        host = ["--host", "127.0.0.1", "--port", "8127"]
        fegsam(["federate", "init", str(folder / "fed"), str(folder / "study.toml"), *host])
        logs = []
        for i, node in enumerate(sorted((folder / "fed" / "nodes").iterdir())):
            visits = {"episodes": 250, "length": 10, "seed": i}
            logs.append(fg.data.simulate_log(node / "visits.parquet", ward, treatment[i], **visits))
            with (node / "node.toml").open("a", encoding="utf-8") as file:
                file.write('[data]\nsource = "log"\npath = "visits.parquet"\n')
            fegsam(["federate", "check", str(node)])
        nodes = [subprocess.Popen([*FEDERATE, "node", str(log.parent)]) for log in logs]
        results = folder / "results"
        subprocess.run([*FEDERATE, "server", str(folder / "fed" / "server"), "-o", str(results)])
        for node in nodes:
            node.wait()
        deployed = fg.load_history(results / "history.nc")
        together = fg.DataFederation(
            [fg.LogSource(log) for log in logs], discount=0.9, num_states=5, num_actions=2,
            held_out=0,
        )  # fmt: skip
        settings = {"step_size": 0.1, "sync_period": 100, "num_steps": 2000, "seeds": (7,)}
        here = fg.run(together, fg.QLearning(), **settings)
    apart = np.abs(deployed.data.final_params.values - here.data.final_params.values).max()
    print(f"after 20 communications, the largest difference from one process is {apart:.0e}")


if __name__ == "__main__":
    main()
