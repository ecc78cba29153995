"""How much the speed of Q-learning in JAX depends on how it is written.

    python benchmarks/jax_forms.py [agents ...]

`fegsam bench` compares the engine with the fastest Q-learning in JAX that we could write. This
script times the forms that one would write first: a scan over an agent's steps under vmap, with
split keys, and with the functions of `jax.random` that draw from a finite distribution; then the
same with alias tables; then the benchmark's own program. All run on JAX's default device in float32
with K = 10, next to `cuda` if there is a GPU, otherwise `cpu`. Before the timing, every form must
learn what `cpu` learns on a small problem.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam import engines
from fegsam.bench.contestants import Contestant, Run, everyone
from fegsam.bench.gpu_limit import gpu_missing
from fegsam.bench.jax_scan import import_jax
from fegsam.bench.problems import STEP_SIZE, BenchCase, BenchSetting, make_case, make_problem
from fegsam.bench.tables import BaselineTables, q_learning_tables
from fegsam.bench.timing import Effort, Field
from fegsam.engines.cpu.sampling import first_states

AGENTS = (4096, 1_000_000)
FORMS = ("choice", "categorical", "alias")
EFFORT = Effort(seconds=0.2, repeats=3)
CHECKED = BenchSetting(num_agents=256, states=9, actions=3)
_ROUNDS = 1000
_APART = 3.0

jax = import_jax()
jnp = jax.numpy


def make_draws(
    federation: Any, tables: BaselineTables, form: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Functions that draw an action and a next state.

    The first takes (key, policy, state), the second (key, state, action).
    """
    states, actions = federation.num_states, federation.num_actions
    policies = jnp.asarray(federation.behavior_policies, np.float32)
    kernel = jnp.asarray(
        federation.mdps[0].transitions.toarray().reshape(states, actions, states), np.float32
    )
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
    policy_threshold, policy_alias = (
        put(tables.policy_threshold, act, np.uint32),
        put(tables.policy_alias, act),
    )
    threshold, stay, go = (
        put(tables.threshold, move, np.uint32),
        put(tables.stay, move),
        put(tables.go, move),
    )

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


def enter(form: str, case: BenchCase) -> Run:
    """Q-learning as one would write it first: rounds -> the flat average after them."""
    federation, tables = make_problem(case.setting)[0], q_learning_tables(case.job)
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

        return jax.lax.scan(step, (q, s, key), length=case.setting.sync_period)[0]

    def one_round(_: Any, carry: Any) -> Any:
        q, s, keys = carry
        q, s, keys = jax.vmap(run_agent, (None, 0, 0, 0))(q, s, keys, policies)
        return q.mean(axis=0), s, keys

    first = np.zeros(tables.num_agents, np.uint32)
    first_states(case.job.chain, np.uint64(0), 0, len(first), first)
    keys = jax.random.split(jax.random.key(0), len(first))
    start = jnp.zeros_like(rewards), jnp.asarray(first.astype(np.int32)), keys
    advance = jax.jit(lambda rounds, start: jax.lax.fori_loop(0, rounds, one_round, start)[0])
    return lambda rounds: np.asarray(advance(rounds, start)).ravel()


def check(forms: list[Contestant]) -> bool:
    """Whether all forms learn what `cpu` learns.

    The unit of distance is that between two runs of `cpu` with different seeds.
    """
    case = make_case(dataclasses.replace(CHECKED, num_seeds=2))
    one, other = engines.Cpu()(case.lasting(_ROUNDS)).data.final_params.values
    case, noise = make_case(CHECKED), np.abs(one - other).max()
    apart = {form.name: np.abs(form.enter(case)(_ROUNDS) - one).max() / noise for form in forms}
    print(
        "distance from cpu, in units of the distance between two runs of it: "
        + "; ".join(f"{name} {ratio:.2f}" for name, ratio in apart.items())
    )
    return max(apart.values()) < _APART


def compare(num_agents: int, contestants: list[Contestant]) -> None:
    """Print one line for each contestant; the first is the unit for the others."""
    setting = BenchSetting(num_agents=num_agents)
    entries = Field(EFFORT).race("agents", make_case(setting), contestants)
    for entry in entries:
        print(
            f"{num_agents:9} {entry.name:17} "
            f"{1e6 * entry.best * setting.agent_steps_per_round:11.1f} {1e9 * entry.best:11.3f} "
            f"{entry.best / entries[0].best:8.1f}",
            flush=True,
        )


def main() -> None:
    known = {contestant.name: contestant for contestant in everyone(quick=True)}
    forms = [
        Contestant(f"JAX, {form}", functools.partial(enter, form), clock="wall") for form in FORMS
    ]
    forms.append(dataclasses.replace(known["JAX float32"], family="JAX, fastest"))
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}")
    if not check(forms):
        sys.exit("A form does not learn what the engines learn.")
    print(f"{'agents':>9} {'':17} {'µs/round':>11} {'ns/step':>11} {'x engine':>8}")
    for text in sys.argv[1:] or AGENTS:
        compare(int(text), [known["cpu" if gpu_missing() else "cuda float32"], *forms])


if __name__ == "__main__":
    main()
