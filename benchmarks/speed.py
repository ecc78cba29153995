"""Speed of the `cpu` engine on Q-learning (Algorithm 4), as ratios to a hand-written C loop and to NumPy in one run.

    python benchmarks/speed.py [--repeats 10] [--quick] [--only SECTION] [--check]

Times are nanoseconds per agent-step: one update of one agent. `cpu` is processor time of the whole process, so with
two threads it says what a step costs per core; `wall` is what a clock on the wall shows. A time of fegsam is that of
the whole `fg.run` call: tables, fixed point, history. The contestants take turns, so that a busy machine is so for all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

import fegsam as fg
import numpy_loop
from c_loop import COMPILER, FLAGS, CLoop
from problems import ACTIONS, garnet_federation
from tables import Tables, q_learning_tables

STEP_SIZE = 0.1
AGENT_STEPS = 12_000_000
NUMPY_SHARE = 10
"""NumPy runs one step in so many: its rate does not depend on the number of steps."""

Contestant = Callable[[], Any]


class Options(NamedTuple):
    repeats: int
    agent_steps: int


class Timing(NamedTuple):
    """Nanoseconds per agent-step."""

    cpu: list[float]
    wall: list[float]


def race(contestants: dict[str, tuple[Contestant, int]], repeats: int) -> dict[str, Timing]:
    """Time each contestant, given with its number of agent-steps, `repeats` times in turn, after one run to warm up."""
    timings = {name: Timing([], []) for name in contestants}
    for run, _ in contestants.values():
        run()
    for _ in range(repeats):
        for name, (run, agent_steps) in contestants.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            timings[name].cpu.append((time.process_time() - cpu) / agent_steps * 1e9)
            timings[name].wall.append((time.perf_counter() - wall) / agent_steps * 1e9)
    return timings


def report(case: str, timings: dict[str, Timing], reference: str) -> None:
    """One line per contestant; ratios above one mean slower than the reference."""
    best, median = min(timings[reference].cpu), statistics.median(timings[reference].cpu)
    for name, (cpu, wall) in timings.items():
        print(
            f"{case:<26} {name:<22} {min(cpu):8.2f} {statistics.median(cpu):8.2f} {min(wall):8.2f}"
            f" {min(cpu) / best:8.2f} {statistics.median(cpu) / median:8.2f}",
            flush=True,
        )


def heading(title: str, reference: str) -> None:
    print(f"\n{title}\nns per agent-step; x: times the {reference}, best to best and median to median")
    print(f"{'':<49} {'cpu best':>8} {'median':>8} {'wall':>8} {'x best':>8} {'x median':>8}")


def engine_run(
    federation: fg.Federation, *, sync_period: int, num_steps: int, threads: int = 1, record: Any = None, **options: Any
) -> Contestant:
    """`fg.run` on one seed; nothing but the end is recorded unless `record` says so."""
    return lambda: fg.run(
        federation,
        fg.QLearning(),
        step_size=STEP_SIZE,
        sync_period=sync_period,
        num_steps=num_steps,
        seeds=(0,),
        record=np.array([num_steps]) if record is None else record,
        engine=fg.engines.Cpu(threads=threads),
        **options,
    )


def baseline_run(loop: Callable[..., Any], tables: Tables, **options: Any) -> Contestant:
    return lambda: loop(tables, step_size=STEP_SIZE, **options)


def whole_rounds(agent_steps: int, num_agents: int, sync_period: int) -> int:
    """The number of steps, in whole rounds, that makes at least so many agent-steps."""
    return -(-agent_steps // (num_agents * sync_period)) * sync_period


def section_baselines(options: Options) -> None:
    heading("Garnet, 100 states, 5 actions, full branching: the engine against C and NumPy", "C loop")
    c_loop = CLoop()
    for num_agents in (256, 4096):
        federation = garnet_federation(num_agents)
        tables = q_learning_tables(federation)
        for sync_period in (10, 100):
            steps = whole_rounds(options.agent_steps, num_agents, sync_period)
            numpy_steps = whole_rounds(options.agent_steps // NUMPY_SHARE, num_agents, sync_period)
            lengths = {"sync_period": sync_period, "num_steps": steps}
            numpy_lengths = {"sync_period": sync_period, "num_steps": numpy_steps}
            contestants = {
                "C": (baseline_run(c_loop, tables, **lengths), num_agents * steps),
                "fegsam": (engine_run(federation, **lengths), num_agents * steps),
                "fegsam, 2 threads": (engine_run(federation, threads=2, **lengths), num_agents * steps),
                "NumPy, plain": (baseline_run(numpy_loop.plain, tables, **numpy_lengths), num_agents * numpy_steps),
                "NumPy, tuned": (baseline_run(numpy_loop.tuned, tables, **numpy_lengths), num_agents * numpy_steps),
            }
            timings = race(contestants, options.repeats)
            report(f"N={num_agents} K={sync_period}", timings, "C")
            fastest = min(timings["fegsam"].cpu)
            ratios = [f"{min(timings[name].cpu) / fastest:.1f}x {name}" for name in ("NumPy, plain", "NumPy, tuned")]
            print(f"{'':<26} fegsam is {' and '.join(ratios)}")


def section_agents(options: Options) -> None:
    heading("A thousand agents and a million, K=10", "thousand")
    sync_period = 10
    contestants, lengths = {}, {}
    for num_agents in (1_000, 1_000_000):
        name = f"fegsam, N={num_agents}"
        lengths[num_agents] = whole_rounds(options.agent_steps, num_agents, sync_period)
        run = engine_run(garnet_federation(num_agents), sync_period=sync_period, num_steps=lengths[num_agents])
        contestants[name] = (run, num_agents * lengths[num_agents])
    report("K=10", race(contestants, options.repeats), "fegsam, N=1000")
    for num_agents, num_steps in lengths.items():
        peak = fresh_process(num_agents=num_agents, num_steps=num_steps)["peak_bytes"]
        print(f"peak memory of a fresh process, N={num_agents}: {peak / 1e6:.0f} MB")


def section_table(options: Options) -> None:
    heading("The table grows: Garnet, 5 actions, branching 5, K=10, fixed point given", "C loop")
    sync_period = 10
    c_loop = CLoop()
    for size in (100, 1_000, 10_000, 100_000):
        federation = garnet_federation(1, states=size // ACTIONS, branching=5)
        fixed_point = fg.fixed_point(federation, fg.QLearning())
        for num_agents in (256, 4096):
            federation = garnet_federation(num_agents, states=size // ACTIONS, branching=5)
            steps = whole_rounds(options.agent_steps, num_agents, sync_period)
            known = {"sync_period": sync_period, "fixed_point": fixed_point, "output_decay": 1 - 1 / steps}
            tables = q_learning_tables(federation)
            contestants = {
                "C": (baseline_run(c_loop, tables, sync_period=sync_period, num_steps=steps), num_agents * steps),
                "fegsam": (engine_run(federation, num_steps=steps, **known), num_agents * steps),
                # What a call costs before its rounds, spread over the same number of agent-steps.
                "fegsam, one round": (engine_run(federation, num_steps=sync_period, **known), num_agents * steps),
            }
            report(f"d={size} N={num_agents}", race(contestants, options.repeats), "C")


def section_recording(options: Options) -> None:
    heading("Recording, Garnet of 100 states: at the end, at every sync, at every step", "C loop that records nothing")
    sync_period = 10
    c_loop = CLoop()
    for num_agents in (256, 4096):
        federation = garnet_federation(num_agents)
        fixed_point = fg.fixed_point(federation, fg.QLearning())
        tables = q_learning_tables(federation)
        lengths = {
            "sync_period": sync_period,
            "num_steps": whole_rounds(options.agent_steps, num_agents, sync_period),
        }
        runs = {
            "C, none": baseline_run(c_loop, tables, **lengths),
            "C, every sync": baseline_run(c_loop, tables, fixed_point=fixed_point, **lengths),
            "fegsam, end": engine_run(federation, **lengths),
            "fegsam, every sync": engine_run(federation, record=sync_period, **lengths),
            "fegsam, every step": engine_run(federation, record=1, **lengths),
        }
        contestants = {name: (run, num_agents * lengths["num_steps"]) for name, run in runs.items()}
        report(f"N={num_agents} K={sync_period}", race(contestants, options.repeats), "C, none")


def section_startup(_: Options) -> None:
    print("\nFrom the start of a process to its first result, seconds (in brackets: the run without imports)")
    with tempfile.TemporaryDirectory() as cache:
        for which in ("first process, empty cache", "second process", "third process"):
            began = time.perf_counter()
            result = fresh_process(num_agents=256, num_steps=1000, cache=cache)
            print(f"{which:<28} {time.perf_counter() - began:6.2f}  ({result['run_seconds']:.2f})", flush=True)


SECTIONS: dict[str, Callable[[Options], None]] = {
    "baselines": section_baselines,
    "agents": section_agents,
    "table": section_table,
    "recording": section_recording,
    "startup": section_startup,
}


def fresh_process(*, num_agents: int, num_steps: int, cache: str | None = None) -> dict[str, float]:
    """What `fresh_process.py` prints; `cache` is where it keeps compiled code."""
    script = Path(__file__).with_name("fresh_process.py")
    command = [sys.executable, str(script), f"--num-agents={num_agents}", f"--num-steps={num_steps}"]
    environment = os.environ if cache is None else {**os.environ, "NUMBA_CACHE_DIR": cache}
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def optimal_values(federation: fg.Federation, tolerance: float = 1e-12) -> np.ndarray:
    """Q* by value iteration, to hold the baselines against: nothing in it comes from fegsam's own solvers."""
    mdp = federation.mdps[0]
    q = np.zeros(mdp.rewards.size)
    while True:
        best = q.reshape(mdp.rewards.shape).max(axis=1)
        previous, q = q, mdp.rewards.ravel() + mdp.discount * (mdp.transitions @ best)
        if np.abs(q - previous).max() < tolerance:
            return q


def check() -> None:
    """Every contestant converges to Q*, and all at the same pace, with lists of touched cells and without."""
    c_loop = CLoop()
    cases = (
        ("dense sync", 256, 0.1, 60_000, (c_loop, numpy_loop.plain, numpy_loop.tuned)),
        ("touched cells", 8, 0.01, 600_000, (c_loop,)),
    )
    for title, num_agents, step_size, num_steps, loops in cases:
        mdp = fg.examples.garnet(20, ACTIONS, 20, discount=0.7, seed=0)
        # Half uniform, so that no cell is so rare that the run would have to be long.
        policies = (fg.policies.uniform(20, ACTIONS) + fg.policies.random(20, ACTIONS, count=3, seed=1)) / 2
        federation = fg.Federation(mdp, policies, num_agents=num_agents)
        tables, optimum = q_learning_tables(federation), optimal_values(federation)
        lengths = {"step_size": step_size, "sync_period": 10, "num_steps": num_steps}
        history = fg.run(federation, fg.QLearning(), record=10, engine=fg.engines.Cpu(threads=1), **lengths)
        curves = {"fegsam": history.data.squared_error.values[0, 1:]}
        for loop in loops:
            average, curve = loop(tables, fixed_point=optimum, **lengths)
            assert curve is not None
            assert np.isclose(curve[-1], np.abs(average - optimum).max() ** 2)
            curves[getattr(loop, "__name__", "C")] = curve
        for name, curve in curves.items():
            early, late = np.sqrt(curve[[len(curve) // 40, -1]]) / np.abs(optimum).max()
            expected = np.sqrt(curves["fegsam"][len(curve) // 40]) / np.abs(optimum).max()
            print(f"{title:<16} {name:<8} relative error early {early:.4f}, late {late:.4f}")
            assert late < 0.02, f"{name} does not converge to Q*"
            assert abs(early - expected) < 0.02, f"{name} does not keep pace with fegsam"
    print("every contestant converges to Q*")


def machine() -> str:
    """What the figures were taken on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    version = subprocess.run([COMPILER, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return (
        f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}; "
        f"{version.splitlines()[0]}, {' '.join(FLAGS)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, help="timings of each contestant (default 10; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="a twelfth of the agent-steps")
    parser.add_argument("--only", choices=SECTIONS, help="one section instead of all")
    parser.add_argument("--check", action="store_true", help="check the baselines against value iteration and stop")
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    options = Options(
        repeats=arguments.repeats or (3 if arguments.quick else 10),
        agent_steps=AGENT_STEPS // 12 if arguments.quick else AGENT_STEPS,
    )
    print(machine())
    for name, section in SECTIONS.items():
        if arguments.only in (None, name):
            section(options)


if __name__ == "__main__":
    main()
