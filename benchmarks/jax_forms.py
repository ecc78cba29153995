"""How much hangs on the way JAX is written?  python benchmarks/jax_forms.py [agents ...]

`fegsam bench` races the engine against the fastest Q-learning in JAX that we could write. Here are the ways in which one would
write it first: a scan over an agent's steps under vmap, keys that are split, and what `jax.random` has to draw from a finite
law; then alias tables in their place, and then the bench's own. All on JAX's default device, float32, K = 10, beside `cuda`
where there is a GPU, else `cpu`. Every form must have learnt what the engine has, as far as N agents with paths of their own
can tell.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam import engines
from fegsam.bench.gpu_limit import gpu_missing
from fegsam.bench.jax_scan import JaxScan, import_jax
from fegsam.bench.problems import STEP_SIZE, Setting, make_case, make_problem
from fegsam.bench.tables import Tables, q_learning_tables
from fegsam.engines.sampling import first_states

AGENTS = (4096, 1_000_000)
FORMS = ("choice", "categorical", "alias")
_REPEATS = 3
_APART = 0.1
"""Of the largest parameter: more means that a form computes something else."""

jax = import_jax()
jnp = jax.numpy


def make_draws(federation: Any, tables: Tables, form: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How an action is drawn from (key, policy, state), and a next state from (key, state, action)."""
    states, actions = federation.num_states, federation.num_actions
    policies = jnp.asarray(federation.behavior_policies, np.float32)
    kernel = jnp.asarray(federation.mdps[0].transitions.toarray().reshape(states, actions, states), np.float32)
    if form == "choice":
        return (
            lambda key, policy, s: jax.random.choice(key, actions, p=policies[policy, s]),
            lambda key, s, a: jax.random.choice(key, states, p=kernel[s, a]),
        )
    if form == "categorical":
        log_policies, log_kernel = jnp.log(policies), jnp.log(kernel)
        return (
            lambda key, policy, s: jax.random.categorical(key, log_policies[policy, s]),
            lambda key, s, a: jax.random.categorical(key, log_kernel[s, a]),
        )

    def put(array: np.ndarray, shape: tuple[int, ...], dtype: Any = np.int32) -> Any:
        return jnp.asarray(array.reshape(shape).astype(dtype))

    act, move = (-1, states, actions), (states, actions, states)
    policy_threshold, policy_alias = put(tables.policy_threshold, act, np.uint32), put(tables.policy_alias, act)
    threshold, stay, go = put(tables.threshold, move, np.uint32), put(tables.stay, move), put(tables.go, move)

    def pick(key: Any, size: int) -> tuple[Any, Any]:
        word = jax.random.bits(key)
        return jax.lax.mulhi(word, jnp.uint32(size)).astype(np.int32), word * jnp.uint32(size)

    def draw_action(key: Any, policy: Any, s: Any) -> Any:
        j, rest = pick(key, actions)
        return jnp.where(rest < policy_threshold[policy, s, j], j, policy_alias[policy, s, j])

    def draw_state(key: Any, s: Any, a: Any) -> Any:
        j, rest = pick(key, states)
        return jnp.where(rest < threshold[s, a, j], stay[s, a, j], go[s, a, j])

    return draw_action, draw_state


def make_plain(
    federation: Any, tables: Tables, first: np.ndarray, form: str, period: int, rounds: int
) -> Callable[[], np.ndarray]:
    """Q-learning as one would write it first; each call runs all rounds."""
    draw_action, draw_state = make_draws(federation, tables, form)
    rewards = jnp.asarray(federation.mdps[0].rewards, np.float32)
    policies = jnp.asarray(tables.agent_policy.astype(np.int32))

    def run_agent(q: Any, s: Any, key: Any, policy: Any) -> Any:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            q, s, key = carry
            key, action_key, state_key = jax.random.split(key, 3)
            a = draw_action(action_key, policy, s)
            s_next = draw_state(state_key, s, a)
            error = rewards[s, a] + tables.discount * q[s_next].max() - q[s, a]
            return (q.at[s, a].add(STEP_SIZE * error), s_next, key), None

        return jax.lax.scan(step, (q, s, key), length=period)[0]

    def one_round(carry: Any, _: None) -> tuple[Any, None]:
        q, s, keys = carry
        q, s, keys = jax.vmap(run_agent, (None, 0, 0, 0))(q, s, keys, policies)
        return (q.mean(axis=0), s, keys), None

    run = jax.jit(lambda *start: jax.lax.scan(one_round, start, length=rounds)[0][0])
    keys = jax.random.split(jax.random.key(0), tables.num_agents)
    start = jnp.zeros_like(rewards), jnp.asarray(first.astype(np.int32)), keys
    return lambda: np.asarray(run(*start)).ravel()


def compare(num_agents: int) -> bool:
    """Print a line for each form; whether all have learnt the same."""
    setting = Setting(num_agents=num_agents)
    case, rounds = make_case(setting), 200 if num_agents < 10**5 else 5
    federation, tables = make_problem(setting)[0], q_learning_tables(case.plan)
    engine = engines.Cpu() if gpu_missing() else engines.Cuda("float32")
    rules = {"step_size": STEP_SIZE, "sync_period": setting.sync_period, "precision": "float32"}
    first = np.zeros(num_agents, np.uint32)
    first_states(case.plan.chain, np.uint64(0), 0, num_agents, first)
    tuned = JaxScan(tables, first, **rules)
    runs: dict[str, tuple[Callable[[], Any], int]] = {}
    # What the engine's call costs besides its rounds is not to tell.
    engine_rounds = 50 * rounds if gpu_missing() is None else rounds
    runs[type(engine).__name__.lower()] = (lambda: engine(case.plan, case.lasting(engine_rounds)), engine_rounds)
    for form in FORMS:
        runs[f"JAX, {form}"] = (make_plain(federation, tables, first, form, setting.sync_period, rounds), rounds)
    runs["JAX, fastest"] = (lambda: tuned(rounds), rounds)

    expected = engine(case.plan, case.lasting(rounds)).data.final_params.values[0]
    base, same = None, True
    for name, (run, count) in runs.items():
        found = run()
        taken = min(_timed(run) for _ in range(_REPEATS)) / count
        base = base or taken
        apart = 0.0 if name == next(iter(runs)) else np.abs(found - expected).max() / np.abs(expected).max()
        same &= bool(apart < _APART)
        print(f"{num_agents:9} {name:17} {1e6 * taken:11.1f} {1e9 * taken / setting.agent_steps_per_round:11.3f} "
              f"{taken / base:8.1f} {apart:8.1e}", flush=True)  # fmt: skip
    return same


def _timed(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def main() -> None:
    device = jax.devices()[0]
    print(f"JAX {jax.__version__} on {device.device_kind}")
    print(f"{'agents':>9} {'':17} {'µs a round':>11} {'ns a step':>11} {'x engine':>8} {'apart':>8}")
    sizes = [int(text) for text in sys.argv[1:]] or AGENTS
    learnt = [compare(num_agents) for num_agents in sizes]
    if not all(learnt):
        sys.exit("A form has learnt something else than the engine.")


if __name__ == "__main__":
    main()
