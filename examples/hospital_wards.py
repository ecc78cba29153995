"""Wards of a hospital learn a treatment from their logs; no row leaves its ward.

Each ward logs what was done and how the patients were: a level of health from 0 to 4, a treatment
(0 or 1), and a reward of 1 for a patient who goes home. The logs are made up here. What the wards
learn together is a table of action values, and its best actions are printed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fegsam as fg

WARDS, LEVELS, TREATMENTS, STAYS = 4, 5, 2, 300


def write_log(path: Path) -> None:
    """A row per day; a stay ends at level 4 (home) or is cut after 30 days."""
    random, lines = np.random.default_rng(0), ["ward,episode,observation,action,reward,terminated"]
    for stay in range(WARDS * STAYS):
        ward, level = stay % WARDS, int(random.integers(0, LEVELS - 1))
        for _ in range(30):
            # Wards differ in how often they choose the second treatment.
            treatment = int(random.random() < 0.2 + 0.15 * ward)
            # The second treatment helps the sick, the first one the others.
            better = 0.7 if treatment == (level < 2) else 0.3
            reached = min(max(level + (1 if random.random() < better else -1), 0), LEVELS - 1)
            home = reached == LEVELS - 1
            lines.append(f"{ward},{stay},{level},{treatment},{int(home)},{str(home).lower()}")
            level = reached
            if home:
                break
        else:
            # The last observation of a stay that is cut has no treatment.
            lines.append(f"{ward},{stay},{level},,,")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stays.csv"
        write_log(log)
        data = fg.DataFederation(
            fg.LogSource(log, by="ward", passes=20),
            discount=0.95,
            num_states=LEVELS,
            num_actions=TREATMENTS,
        )
        history = fg.run(data, fg.QLearning(), step_size=0.05, sync_period=50, num_steps=20_000)
    table = history.data.final_params.values[0].reshape(LEVELS, TREATMENTS)
    print(f"{WARDS} wards, {history.settings.communications} communications")
    for level in range(LEVELS - 1):
        first, second = table[level]
        print(f"level {level}: treatment {table[level].argmax()} ({first:.2f} and {second:.2f})")


if __name__ == "__main__":
    main()
