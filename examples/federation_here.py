"""A real federation on one machine: two agents in separate processes, connected over TLS.

Its result equals the simulator's.
"""

from __future__ import annotations

import pathlib
import tempfile

import fegsam as fg
from fegsam.cli import main as fegsam
from fegsam.experiments.spec.study import parse_study

STUDY = """
[study]
name = "two-hospitals"
seeds = [7]

[problem]
generator = "garnet"
states = 6
actions = 2
branching = 3
discount = 0.7
seed = 0

[problem.behavior]
kind = "random"
count = 2
seed = 1

[algorithm]
name = "q_learning"

[run]
num_steps = 1000

[grid]
num_agents = 2
sync_period = 500
step_size = 0.1
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec, results = pathlib.Path(folder) / "study.toml", pathlib.Path(folder) / "federation"
        spec.write_text(STUDY, encoding="utf-8")
        fegsam(["federate", "run", str(spec), "-o", str(results)])
        deployed = fg.load_history(results / "history.nc")
    simulated = parse_study(STUDY).cells()[0].run()
    apart = abs(deployed.data.final_params - simulated.data.final_params).max()
    print(
        f"after {deployed.settings.communications} communications, the largest difference from "
        f"the simulation is {float(apart):.0e}"
    )


if __name__ == "__main__":
    main()
