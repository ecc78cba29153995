"""What a row of a log costs: reading, checking, and the update of tabular Q-learning.

Prints a table with the processor time of each stage and the memory of each, measured in processes
of their own:

    python benchmarks/logs.py --rows 10000000
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fegsam as fg
from fegsam.data import files
from fegsam.engines.cpu.recorded import compiled_agent
from fegsam.prepare import prepare

STATES, ACTIONS, LENGTH, PERIOD = 500, 6, 20, 1000
"""The sizes of the table, the transitions of an episode, and the steps between two averages."""


def write_log(path: Path, rows: int) -> None:
    """A log of random transitions, written in pieces; every episode is truncated."""
    random, episode, piece = np.random.default_rng(0), LENGTH + 1, 10**6 // (LENGTH + 1)
    writer = None
    for first in range(0, rows // episode, piece):
        episodes = np.arange(first, min(first + piece, rows // episode))
        count = len(episodes) * episode
        last = np.tile(np.arange(episode) == LENGTH, len(episodes))
        before = np.tile(np.arange(episode) == LENGTH - 1, len(episodes))
        table = pa.table(
            {
                "episode": np.repeat(episodes, episode),
                "observation": random.integers(0, STATES, count),
                "action": pa.array(random.integers(0, ACTIONS, count), mask=last),
                "reward": pa.array(random.integers(0, 5, count) / 4.0, mask=last),
                "terminated": np.zeros(count, bool),
                "truncated": before,
            }
        )
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _federation(path: Path) -> fg.DataFederation:
    """An agent that learns from every row."""
    sizes = {"num_states": STATES, "num_actions": ACTIONS}
    return fg.DataFederation(fg.LogSource(path), discount=0.9, held_out=0.0, **sizes)


def decode(path: Path, rows: int) -> Callable[[], object]:
    """Arrow's own work: the columns as arrays, nothing else."""
    layout = fg.LogSource(path).layouts()[0]
    return lambda: [
        batch.table.num_rows for batch in files.batches(path, layout.file_columns, {}, 0)
    ]


def check(path: Path, rows: int) -> Callable[[], object]:
    """Rows and gaps, with every check of a row."""
    reader = fg.LogSource(path).open(discount=0.9, num_states=STATES, num_actions=ACTIONS)
    reader.read_some(1)

    def read() -> None:
        while len(reader.read_some(1 << 20).gap):
            pass

    return read


def update(path: Path, rows: int) -> Callable[[], object]:
    """The local steps of an agent, in rounds of `PERIOD`."""
    data = _federation(path)
    settings = {"step_size": 0.1, "sync_period": PERIOD, "num_steps": PERIOD}
    agent = compiled_agent(prepare(data, fg.QLearning(), **settings), 0, 0)
    params = agent.local_steps(np.zeros(STATES * ACTIONS), PERIOD)
    rounds = rows // (LENGTH + 1) * LENGTH // PERIOD - 1

    def steps() -> np.ndarray:
        now = params
        for _ in range(rounds):
            now = agent.local_steps(now, PERIOD)
        return now

    return steps


def whole_run(path: Path, rows: int) -> Callable[[], object]:
    """`fegsam.run`: a first pass that refuses a damaged log, and a second one that learns."""
    data = _federation(path)
    steps = rows // (LENGTH + 1) * LENGTH
    settings = {"step_size": 0.1, "sync_period": PERIOD, "record": [0]}
    fg.run(data, fg.QLearning(), num_steps=PERIOD, **settings)
    return lambda: fg.run(data, fg.QLearning(), num_steps=steps, **settings)


STAGES = {
    "reading": decode,
    "reading and checks": check,
    "reading, checks and update": update,
    "fegsam.run, with the check before": whole_run,
}


def stage(name: str, path: Path, rows: int) -> None:
    """Print the processor time and the peak memory of a stage."""
    pa.set_cpu_count(1)
    work = STAGES[name](path, rows)
    before = time.process_time()
    work()
    spent = time.process_time() - before
    # The peak of this program; that of `getrusage` includes the process that started it.
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    print(spent, peak[1] if peak else "nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--log", type=Path, help="keep the log here, and use one that is there")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.stage:
        stage(given.stage, given.log, given.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.log or Path(folder) / "log.parquet"
        if not path.exists():
            write_log(path, given.rows)
        print(f"{given.rows:.0e} rows, {path.stat().st_size / 2**20:.0f} MiB, one core\n")
        print(f"{'':36}{'ns a row':>10}{'rows a second':>16}{'peak memory':>14}")
        for name in STAGES:
            command = [sys.executable, __file__, "--rows", str(given.rows), "--log", str(path)]
            done = subprocess.run(
                [*command, "--stage", name], capture_output=True, text=True, check=True
            )
            spent, memory = (float(word) for word in done.stdout.split())
            rate = given.rows / spent
            print(f"{name:36}{1e9 / rate:10.1f}{rate / 1e6:14.1f} M{memory / 1024:10.0f} MiB")


if __name__ == "__main__":
    main()
