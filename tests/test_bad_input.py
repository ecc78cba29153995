"""Bad input gets one sentence that names the value, the place and the cure, through the public
names alone."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fegsam as fg
from helpers import golden

B1, B2, TARGET = golden.B1, golden.B2, golden.TARGET
RUN = {"step_size": 0.1, "sync_period": 2, "num_steps": 10, "engine": "reference"}
NEVER_SECOND = np.array([[1.0, 0.0], [0.5, 0.5]])


def mdp(**changes: Any) -> fg.MDP:
    arrays = {
        "transitions": golden.TRANSITIONS,
        "rewards": golden.REWARDS,
        "discount": golden.DISCOUNT,
    }
    return fg.MDP(**(arrays | changes))


def transitions(state: int, action: int, row: list[float]) -> np.ndarray:
    table = golden.TRANSITIONS.copy()
    table[state, action] = row
    return table


def run(problem: Any = None, algorithm: Any = None, **changes: Any) -> Any:
    problem = golden.federation() if problem is None else problem
    return fg.run(problem, fg.QLearning() if algorithm is None else algorithm, **(RUN | changes))


def run_policies(*policies: np.ndarray, algorithm: Any = None, **changes: Any) -> Any:
    return run(golden.federation(policies, **changes), algorithm)


def noise(kernel: Any = ((0.5, 0.5), (0.5, 0.5)), **changes: Any) -> fg.MarkovNoise:
    return fg.MarkovNoise(kernel, **({"num_agents": 2} | changes))


def linear(states: int = 2, kinds: int = 1) -> fg.LinearSA:
    return fg.LinearSA(-np.ones((kinds, states, 1, 1)), np.zeros((kinds, states, 1)))


def always_first(world: fg.MDP) -> fg.Federation:
    return fg.Federation(
        world, num_agents=1, target_policy=[[1.0, 0.0]] * 2, features=[[1.0], [1.0]]
    )


def bound(step_size: float = 0.1, **changes: Any) -> Any:
    return fg.theory.error_bound(
        noise(), linear_pull(), step_size=step_size, sync_period=1, num_steps=10, **changes
    )


def linear_pull() -> fg.LinearSA:
    return fg.LinearSA([[[-0.1]], [[-0.1]]], [[0.0], [1.0]])


def pull(params, y, kind, out):
    out[0] = 1.0 - params[0]


def random_pull(params, y, kind, out):
    out[0] = np.random.rand() - params[0]  # noqa: NPY002  what a user writes


def added_pull(params, y, kind, out):
    out[0] += 1.0 - params[0]


class Call:
    def __call__(self, params, y, kind, out):
        out[0] = 1.0 - params[0]


def path(**changes: Any) -> Any:
    return fg.sample_path(
        golden.federation(), fg.QLearning(), **({"seed": 0, "agent": 0, "num_steps": 3} | changes)
    )


def resume(first: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A run of 10 steps, then `changes` of its settings to 20."""
    history = run(**({"record": [0, 5, 10], "seeds": (1, 2)} | (first or {})))
    return run(resume_from=history, **({"num_steps": 20, "seeds": (1, 2)} | changes))


PROBLEMS = {
    # rows that do not sum to one
    "transition row": (
        lambda: mdp(transitions=transitions(1, 0, [0.5, 0.4])),
        r"transitions for state 1, action 0 sums to 0\.9\b.*divide the row by its sum",
    ),
    "sparse transition row": (
        lambda: mdp(transitions=sparse.csr_array(transitions(0, 1, [0.5, 0.75]).reshape(4, 2))),
        r"transitions for state 0, action 1 sums to 1\.25\b",
    ),
    "behaviour row": (
        lambda: golden.federation([B1, B2 * [[1.0], [0.5]]]),
        r"behavior_policies of agent kind 1 in state 1 sums to 0\.5\b",
    ),
    "target row": (
        lambda: golden.federation(target_policy=TARGET * 2),
        r"target_policy in state 0 sums to 2\b",
    ),
    "initial law": (
        lambda: golden.federation(initial_distribution=[0.5, 0.25]),
        r"initial_distribution sums to 0\.75\b",
    ),
    "noise row": (
        lambda: noise([[0.5, 0.5], [0.5, 0.6]]),
        r"kernels\[0\] in state 1 sums to 1\.1\b",
    ),
    # negative or NaN probabilities
    "negative": (
        lambda: mdp(transitions=transitions(0, 1, [1.5, -0.5])),
        r"state 0, action 1 has probability -0\.5 at index 1.*correct that entry",
    ),
    "NaN": (
        lambda: mdp(transitions=transitions(1, 1, [np.nan, 1.0])),
        "state 1, action 1 has probability nan at index 0",
    ),
    "negative policy": (
        lambda: golden.federation([B1, [[0.5, 0.5], [1.5, -0.5]]]),
        r"agent kind 1 in state 1 has probability -0\.5 at index 1",
    ),
    "NaN policy": (
        lambda: golden.federation(target_policy=[[np.nan, 1.0], [0.5, 0.5]]),
        "target_policy in state 0 has probability nan at index 0",
    ),
    "negative noise": (
        lambda: noise([[1.0, 0.0], [1.5, -0.5]]),
        r"kernels\[0\] in state 1 has probability -0\.5 at index 1",
    ),
    # wrong shapes
    "transitions' shape": (
        lambda: mdp(transitions=golden.TRANSITIONS[:, :1]),
        r"transitions has shape \(2, 1, 2\).*\(2, 2, 2\).*give",
    ),
    "rewards' shape": (
        lambda: mdp(rewards=[1.0, 2.0]),
        r"rewards has shape \(2,\).*give shape \(S, A\)",
    ),
    "behaviours' shape": (
        lambda: golden.federation(behavior_policies=np.ones((2, 2, 3)) / 3),
        r"behavior_policies has shape \(2, 2, 3\).*give shape \(M, 2, 2\)",
    ),
    "target's shape": (
        lambda: golden.federation(target_policy=TARGET[:1]),
        r"target_policy has shape \(1, 2\).*give",
    ),
    "features' shape": (
        lambda: golden.federation(features=[[1.0]]),
        r"features has shape \(1, 1\).*give shape \(2, d\)",
    ),
    "initial law's shape": (
        lambda: golden.federation(initial_distribution=[1.0]),
        r"initial_distribution has shape \(1,\)",
    ),
    "kernel's shape": (
        lambda: noise(np.ones((2, 3)) / 3),
        r"kernels\[0\] has shape \(2, 3\).*square.*give",
    ),
    "matrices' shape": (
        lambda: fg.LinearSA([[1.0]], [[1.0]]),
        r"matrices of shape \(1, 1\).*give \(M, Y, d, d\)",
    ),
    "offsets' shape": (
        lambda: fg.LinearSA([[[1.0]]], [[1.0], [2.0]]),
        r"offsets of shape \(2, 1\).*give \(M, Y, d, d\) and \(M, Y, d\)",
    ),
    "matrices that are none": (lambda: fg.LinearSA("fast", [[1.0]]), "(?i)matrices.*give"),
    "matrices that are not finite": (
        lambda: fg.LinearSA([[[np.nan]]], [[1.0]]),
        r"matrices\[0, 0, 0\] is nan.*finite",
    ),
    "rewards that are not finite": (
        lambda: mdp(rewards=[[0.0, np.inf], [0.0, 0.0]]),
        r"rewards\[0, 1\] is inf",
    ),
    "features that are not finite": (
        lambda: golden.federation(features=[[1.0], [np.nan]]),
        r"features\[1, 0\] is nan",
    ),
    # discount
    "discount of one": (lambda: mdp(discount=1.0), r"discount is 1\.0.*strictly between 0 and 1"),
    "discount of zero": (lambda: mdp(discount=0.0), r"discount is 0\.0.*strictly between 0 and 1"),
    "discount in quotes": (lambda: mdp(discount="0.9"), r"discount is '0\.9'.*without quotes"),
    "negative discount": (lambda: mdp(discount=-0.5), r"discount is -0\.5"),
    # coverage
    "target not covered, tabular": (
        lambda: run_policies(B1, NEVER_SECOND, algorithm=fg.OffPolicyTabularTD()),
        r"agent kind 1 never takes action 1 in state 0.*behavior_policies\[1, 0, 1\] positive",
    ),
    "target not covered, linear": (
        lambda: run_policies(NEVER_SECOND, B1, algorithm=fg.OffPolicyLinearTD()),
        r"agent kind 0 never takes action 1 in state 0.*behavior_policies\[0, 0, 1\] positive",
    ),
    "an action never tried": (
        lambda: run_policies(NEVER_SECOND, NEVER_SECOND),
        "no agent ever takes action 1 in state 0.*positive",
    ),
    # features
    "rank": (
        lambda: golden.federation(features=[[1.0, 2.0], [2.0, 4.0]]),
        "features has 2 columns but rank 1.*drop the columns",
    ),
    # chains that are not ergodic
    "reducible": (
        lambda: run(
            fg.Federation(
                mdp(transitions=np.stack([np.eye(2)] * 2, axis=1)), [B1, B2], num_agents=2
            )
        ),
        r"agent kind 0.*reducible.*\[0\].*never reaches state 1.*give",
    ),
    "a garnet that is not connected": (
        lambda: run(
            fg.Federation(
                fg.examples.garnet(20, 3, 4, 0.8, seed=769),
                fg.policies.uniform(20, 3),
                num_agents=2,
            )
        ),
        "never reaches state 13, whatever the policy: .* connected=True",
    ),
    "periodic": (
        lambda: run(
            fg.Federation(mdp(transitions=np.stack([1 - np.eye(2)] * 2, axis=1)), B1, num_agents=2)
        ),
        "every agent.*period 2.*let some state stay",
    ),
    "periodic noise of one kind": (
        lambda: run(noise([[[0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]]), linear()),
        "agent kind 1.*period 2",
    ),
    "reducible under the target policy": (
        lambda: run(always_first(mdp(transitions=transitions(0, 0, [1.0, 0.0]))), fg.OnPolicyTD()),
        r"every agent.*reducible.*states \[0\].*never reaches state 1",
    ),
    # kinds and agents
    "a policy that is not there": (
        lambda: golden.federation(assignment=[0, 2]),
        r"assignment\[1\] is 2.*numbered 0 to 1.*name one of those",
    ),
    "a kernel that is not there": (lambda: noise(assignment=[0, -1]), r"assignment\[1\] is -1"),
    "assignment's length": (
        lambda: golden.federation(assignment=[0]),
        r"assignment has shape \(1,\).*2 agents",
    ),
    "no number of agents": (
        lambda: fg.Federation(mdp(), B1),
        "num_agents is missing.*give num_agents=",
    ),
    "no number of noisy agents": (
        lambda: fg.MarkovNoise([[1.0]]),
        "num_agents is missing.*give num_agents=",
    ),
    "no agents": (lambda: noise(num_agents=0), "num_agents is 0.*at least 1"),
    "three MDPs and two policies": (
        lambda: fg.Federation([mdp()] * 3, [B1, B2], num_agents=3),
        "3 MDPs and 2 behavior_policies.*give one of either, or as many of both",
    ),
    "MDPs that differ in discount": (
        lambda: fg.Federation([mdp(), mdp(discount=0.75)], B1, num_agents=2),
        r"MDP 1 has discount 0\.75 and MDP 0 has 0\.5.*equal discount",
    ),
}

ALGORITHMS = {
    "horizon of zero": (lambda: fg.OnPolicyTD(horizon=0), "horizon is 0.*at least 1"),
    "negative horizon": (lambda: fg.OffPolicyTabularTD(-1), "horizon is -1.*at least 1"),
    "half a horizon": (lambda: fg.OffPolicyLinearTD(1.5), r"horizon is 1\.5.*whole number"),
    "no target, alg2": (
        lambda: run(golden.federation(target_policy=None), fg.OnPolicyTD()),
        "OnPolicyTD evaluates a policy.*pass target_policy=",
    ),
    "no target, alg3": (
        lambda: run(golden.federation(target_policy=None), fg.OffPolicyTabularTD()),
        "OffPolicyTabularTD evaluates a policy.*pass target_policy=",
    ),
    "no target, alg5": (
        lambda: run(golden.federation(target_policy=None), fg.OffPolicyLinearTD()),
        "OffPolicyLinearTD evaluates a policy.*pass target_policy=",
    ),
    "no features, alg2": (
        lambda: run(golden.federation(features=None), fg.OnPolicyTD()),
        r"OnPolicyTD is linear.*pass features= \(S, d\)",
    ),
    "no features, alg5": (
        lambda: run(golden.federation(features=None), fg.OffPolicyLinearTD()),
        r"OffPolicyLinearTD is linear.*pass features= \(S, d\)",
    ),
    "no policy at all": (
        lambda: run(golden.federation(behavior_policies=None, target_policy=None)),
        "no policy.*pass behavior_policies=",
    ),
    "an MDP for a federation": (
        lambda: run(mdp()),
        "QLearning.*of type MDP; pass a fegsam.Federation",
    ),
    "noise for a federation": (
        lambda: run(noise(), fg.OffPolicyLinearTD()),
        "OffPolicyLinearTD.*of type MarkovNoise; pass a fegsam.Federation",
    ),
    "a federation for noise": (
        lambda: run(algorithm=linear()),
        "LinearSA runs on a Markov chain.*given a Federation; pass a fegsam.MarkovNoise",
    ),
    "a federation for one's own rule": (
        lambda: run(algorithm=fg.StochasticApproximation(pull, dim=1)),
        "StochasticApproximation.*given a Federation; pass a fegsam.MarkovNoise",
    ),
    "matrices for other states": (
        lambda: run(noise(), linear(states=3)),
        "LinearSA has matrices for 1 kinds and 3 states.*has 1 kinds and 2 states; make them agree",
    ),
    "matrices for other kinds": (
        lambda: run(noise(), linear(kinds=2)),
        "2 kinds and 2 states.*1 kinds and 2 states",
    ),
    "no algorithm": (
        lambda: run(algorithm="Q"),
        r"The algorithm is 'Q'; give one of.*QLearning\(\)",
    ),
    "a class for an algorithm": (
        lambda: run(algorithm=fg.QLearning),
        r"QLearning.*give one of.*QLearning\(\)",
    ),
    "no rule": (
        lambda: fg.StochasticApproximation(3, dim=1),
        r"rule is 3; give a function rule\(params, y, kind, out\)",
    ),
    "no dimension": (lambda: fg.StochasticApproximation(pull, dim=0), "dim is 0.*at least 1"),
    "another norm": (
        lambda: fg.StochasticApproximation(pull, dim=1, norm=1),
        "norm is 1; give 2 or",
    ),
    "a rule that draws": (
        lambda: run(noise(), fg.StochasticApproximation(random_pull, dim=1), fixed_point=[0.5]),
        "'random_pull' gives another result when it is called again.*no random numbers.*from y",
    ),
    "a rule that adds to out": (
        lambda: run(noise(), fg.StochasticApproximation(added_pull, dim=1), fixed_point=[1.0]),
        r"'added_pull' does not set out\[0\].*with = and not with \+=",
    ),
    "an array for a step size": (
        lambda: run(step_size=np.linspace(0.1, 1.0, 1000)),
        r"step_size is an array of shape \(1000,\); give one positive number, and schedule=",
    ),
    "a partial function for a rule": (
        lambda: run(
            noise(), fg.StochasticApproximation(functools.partial(pull), dim=1), fixed_point=[1.0]
        ),
        "(?i)the rule is .*give a function",
    ),
    "an object for a rule": (
        lambda: run(noise(), fg.StochasticApproximation(Call(), dim=1), fixed_point=[1.0]),
        "(?i)the rule is .*give a function",
    ),
}

SETTINGS = {
    "sync_period of zero": (lambda: run(sync_period=0), "sync_period is 0.*at least 1"),
    "half a sync_period": (lambda: run(sync_period=1.5), r"sync_period is 1\.5.*whole number"),
    "no steps": (lambda: run(num_steps=0), "num_steps is 0.*at least 1"),
    "negative steps": (lambda: run(num_steps=-3), "num_steps is -3.*at least 1"),
    "step size of zero": (lambda: run(step_size=0), "step_size is 0; give a positive number"),
    "negative step size": (
        lambda: run(step_size=-0.1),
        r"step_size is -0\.1; give a positive number",
    ),
    "step size of NaN": (lambda: run(step_size=np.nan), "step_size is nan; give a positive number"),
    "infinite step size": (
        lambda: run(step_size=np.inf),
        "step_size is inf; give a positive number",
    ),
    "a word for a step size": (
        lambda: run(step_size="small"),
        "step_size is 'small'; give a positive number",
    ),
    "record too late": (
        lambda: run(record=[0, 11]),
        "record has time 11; times run from 0 to num_steps=10",
    ),
    "record too early": (
        lambda: run(record=[-1, 3]),
        "record has time -1; times run from 0 to num_steps=10",
    ),
    "record of nothing": (lambda: run(record=[]), r"record is \[\]; give"),
    "record every zero": (lambda: run(record=0), "record is 0.*at least 1"),
    "record at half times": (lambda: run(record=[0.5]), r"record is \[0\.5\]; give.*list of times"),
    "record in rows": (lambda: run(record=[[1, 2]]), r"record is \[\[1, 2\]\]; give"),
    "no seeds": (lambda: run(seeds=[]), r"seeds is empty; give at least one"),
    "seeds twice": (
        lambda: run(seeds=[3, 1, 3]),
        "seeds has 3 more than once; give each seed once",
    ),
    "negative seed": (
        lambda: run(seeds=[0, -1]),
        r"seeds has -1; give whole numbers from 0 to 2\*\*64 - 1",
    ),
    "seed too large": (lambda: run(seeds=[2**64]), f"seeds has {2**64}; give whole numbers from 0"),
    "one number for seeds": (lambda: run(seeds=5), "seeds is 5; give"),
    "half a seed": (lambda: run(seeds=[0.5]), r"seeds .*0\.5.*give whole numbers"),
    "a word for a seed": (lambda: run(seeds=["first"]), "seeds .*'?first'?.*give"),
    "a word for seeds": (lambda: run(seeds="12"), "seeds .*'12'.*give"),
    "an engine that is not there": (
        lambda: run(engine="abacus"),
        r"engine is 'abacus'; choose one of 'cpu', .*'reference'.*callable",
    ),
    "nothing for an engine": (lambda: run(engine=None), "engine is None; choose one of"),
    "no threads": (lambda: fg.engines.Cpu(threads=0), "threads is 0.*at least 1"),
    "half a thread": (lambda: fg.engines.Cpu(threads=0.5), r"threads is 0\.5.*whole number"),
    "another sampling": (
        lambda: run(sampling="sobol"),
        "sampling is 'sobol'; give 'markov' or 'iid'",
    ),
    "output decay of one": (
        lambda: run(output_decay=1.0),
        r"output_decay is 1\.0; .*between 0 and 1",
    ),
    "output decay of a word": (
        lambda: run(output_decay="slow"),
        "output_decay is 'slow'; .*between 0 and 1",
    ),
    "start's length": (
        lambda: run(initial_params=[0.0]),
        r"initial_params has shape \(1,\); give .*\(4,\)",
    ),
    "a table for a start": (
        lambda: run(initial_params=np.zeros((2, 2))),
        r"initial_params has shape \(2, 2\); give .*\(4,\)",
    ),
    "start that is not finite": (
        lambda: run(initial_params=[0, 0, np.inf, 0]),
        r"initial_params\[2\] is inf, but must be finite",
    ),
    "a word for a start": (lambda: run(initial_params="zero"), "initial_params .*give"),
    "complex start": (lambda: run(initial_params=np.full(4, 1j)), "initial_params .*give"),
    "fixed point's length": (
        lambda: run(fixed_point=[0.0] * 5),
        r"fixed_point has shape \(5,\); give .*\(4,\)",
    ),
    "fixed point that is not finite": (
        lambda: run(fixed_point=[np.nan] * 4),
        r"fixed_point\[0\] is nan, but must be finite",
    ),
    "path of nobody": (lambda: path(agent=2), "agent is 2; there are agents 0 to 1"),
    "path of a negative agent": (lambda: path(agent=-1), "agent is -1; there are agents 0 to 1"),
    "path of no steps": (lambda: path(num_steps=0), "num_steps is 0.*at least 1"),
    "path of a negative seed": (lambda: path(seed=-1), r"seed.* -1\b.*give"),
    "path of a seed too large": (lambda: path(seed=2**64), f"seed.* {2**64}.*give"),
    "path of another sampling": (
        lambda: path(sampling="sobol"),
        "sampling is 'sobol'; give 'markov' or 'iid'",
    ),
}

RESUMES = {
    "step size": (
        lambda: resume(step_size=0.2),
        r"differs in step_size \(0\.1, now 0\.2\); give the same",
    ),
    "sync period": (lambda: resume(sync_period=5), r"differs in sync_period \(2, now 5\)"),
    "seeds": (lambda: resume(seeds=(2, 1)), r"differs in seeds \(\(1, 2\), now \(2, 1\)\)"),
    "sampling": (lambda: resume(sampling="iid"), r"differs in sampling \('markov', now 'iid'\)"),
    "record_params": (
        lambda: resume(record_params=True),
        r"differs in record_params \(False, now True\)",
    ),
    "algorithm": (
        lambda: resume({"algorithm": fg.OnPolicyTD(2)}, algorithm=fg.OnPolicyTD(3)),
        r"differs in algorithm \('OnPolicyTD\(horizon=2\)', now 'OnPolicyTD\(horizon=3\)'\)",
    ),
    "number of agents": (
        lambda: resume(problem=golden.federation(num_agents=3)),
        r"differs in num_agents \(2, now 3\)",
    ),
    "problem": (
        lambda: resume(problem=golden.federation(assignment=[1, 0])),
        "differs in the problem.*give the same",
    ),
    "start": (
        lambda: resume(initial_params=[1.0, 0, 0, 0]),
        "differs in .*initial_params.*give the same",
    ),
    "fixed point": (
        lambda: resume(fixed_point=[0.0] * 4),
        "differs in .*fixed_point.*give the same",
    ),
    "fewer steps": (
        lambda: resume(num_steps=9),
        r"has 10 steps already and num_steps is 9; give the total",
    ),
    "a time that was not recorded": (
        lambda: resume(record=[4, 20]),
        "record has time 4.*did not record; leave it out",
    ),
    "after stopping at the output": (
        lambda: resume({"stop_at_output": True}),
        "stops at its output.*cannot be resumed; run with stop_at_output=False",
    ),
    "to stop at the output": (
        lambda: resume(stop_at_output=True),
        "stops at its output.*cannot be resumed",
    ),
    "a path for a history": (
        lambda: run(resume_from="run.nc"),
        r"resume_from is 'run\.nc'.*load_history",
    ),
}

TOO_LARGE = {
    "rewards whose powers overflow": (
        lambda: mdp(rewards=np.full((2, 2), 1e150)),
        r"rewards\[0, 0\] is 1e\+150.*at most 1e\+100",
    ),
    "features whose powers overflow": (
        lambda: golden.federation(features=[[1.0], [1e101]]),
        r"features\[1, 0\] is 1e\+101",
    ),
    "offsets whose powers overflow": (
        lambda: fg.LinearSA([[[-1.0]]], [[1e200]]),
        r"offsets\[0, 0\] is 1e\+200",
    ),
    "start whose square overflows": (
        lambda: run(initial_params=[1e200] * 4),
        r"initial_params\[0\] is 1e\+200",
    ),
    "a step size beyond floats": (
        lambda: run(step_size=10**400),
        r"step_size is 1000.*at most 1e\+100",
    ),
    "a step size of 5000 digits": (
        lambda: run(step_size=10**5000),
        "step_size is a value of type int; .*at most",
    ),
    "record beyond 64 bits": (
        lambda: run(record=10**30),
        "record is 1000.*at most 4611686018427387903",
    ),
    "record of more times than fit": (
        lambda: run(record=1, num_steps=10**15),
        "record=1 asks for 10{15} times.*less often",
    ),
    "a recorded time beyond 64 bits": (
        lambda: run(record=[10**30]),
        "record is .*give a whole number, or a list",
    ),
    "steps beyond 64 bits": (
        lambda: run(num_steps=2**62),
        "num_steps is 4611686018427387904.*at most",
    ),
    "period beyond 64 bits": (
        lambda: run(sync_period=2**63),
        "sync_period is 9223372036854775808.*at most",
    ),
    "agents beyond 64 bits": (
        lambda: noise(num_agents=2**62),
        "num_agents is 4611686018427387904.*at most",
    ),
    "policies beyond memory": (
        lambda: fg.policies.uniform(2**40, 2**20),
        "states=.* and actions=.* ask for .*smaller",
    ),
    "random policies beyond memory": (
        lambda: fg.policies.random(2**61, 2, 2, 0),
        "count=2 and states=.*smaller",
    ),
    "garnet beyond memory": (
        lambda: fg.examples.garnet(2**61, 4, 4, 0.9, 0),
        "states=2305843009213693952 and .*smaller",
    ),
    "walk beyond memory": (
        lambda: fg.examples.random_walk(2**40, 0.9),
        "states is 1099511627776.*at most 100000",
    ),
    "swim beyond memory": (
        lambda: fg.examples.river_swim(2**62),
        "states is 4611686018427387904.*at most 100000",
    ),
    "grid beyond memory": (
        lambda: fg.examples.grid_world(2**40, 2**20, 0.9),
        "rows=.* and columns=.* ask for",
    ),
    "horizon beyond 64 bits": (
        lambda: fg.OnPolicyTD(2**62),
        "horizon is 4611686018427387904.*at most",
    ),
}

FOREIGN = {
    "labels that are a number": (
        lambda: mdp(labels=7),
        "labels is 7, but must name the states: give a sequence of 2 labels",
    ),
    "a ragged assignment": (
        lambda: noise(assignment=[[0], [0, 0]]),
        "assignment is a list that cannot be read.*whole numbers",
    ),
    "a ragged record": (
        lambda: run(record=[[0], [0, 0]]),
        "record is .*give a whole number, or a list",
    ),
    "a word for a waiting factor": (
        lambda: bound(tau_factor="x"),
        "tau_factor is 'x', but must be a number from 2 to 1e",
    ),
    "a waiting factor beyond all numbers": (
        lambda: bound(tau_factor=1e200),
        r"tau_factor is 1e\+200, but must be a number from 2 to "
        r"1e\+100; give such",
    ),
    "a list for a precision": (
        lambda: fg.engines.Cuda(precision=["float64"]),
        r"precision is "
        r"\['float64'\]; "
        r"give",
    ),
    "an array for a sampling": (
        lambda: run(sampling=np.ones(2)),
        r"sampling is array.*; give "
        r"'markov' or 'iid'",
    ),
    "an array for a flag": (
        lambda: run(record_params=np.ones(2)),
        "record_params is array.* must be True or False",
    ),
    "an array for a norm": (
        lambda: fg.StochasticApproximation(pull, 1, norm=np.ones(2)),
        "norm is array.*; give 2 or",
    ),
    "a list of assumptions": (
        lambda: fg.StochasticApproximation(pull, 1, assumptions=[1]),
        r"assumptions is \[1\]; give a mapping",
    ),
    "an assumption that is a word": (
        lambda: fg.StochasticApproximation(pull, 1, assumptions={"B": "x"}),
        r'assumptions\["B"\] '
        r"is .*give",
    ),
    "the value of no MDP": (lambda: fg.policy_value(3, [[1.0]]), "mdp is 3; give a fegsam.MDP"),
    "the fixed point of no algorithm": (
        lambda: fg.fixed_point(golden.federation(), 3),
        "algorithm is 3; give one of fegsam's",
    ),
    "the chains of no algorithm": (
        lambda: fg.exact.kind_chains(golden.federation(), None),
        "algorithm is None; give one",
    ),
    "assumptions of no algorithm": (
        lambda: fg.theory.assumptions(golden.federation(), fg.MDP),
        "algorithm is <class",
    ),
    "a history that is a number": (
        lambda: fg.load_history(3),
        "path is 3; give the path of a file",
    ),
    "an environment that is a number": (
        lambda: fg.examples.from_gymnasium(3, 0.9),
        "env_id is 3; give the name",
    ),
    "one horizon to scan": (
        lambda: fg.theory.scan_horizons(golden.federation(), fg.OffPolicyLinearTD(), 3),
        "horizons is 3, but must be a list: give",
    ),
    "an underflowing step of the theorem": (
        lambda: bound(5e-324 * 2),
        "The theorem's step size.*must be positive",
    ),
}

EVERY = (
    PROBLEMS
    | ALGORITHMS
    | SETTINGS
    | TOO_LARGE
    | FOREIGN
    | {f"resume: {what}": case for what, case in RESUMES.items()}
)


@pytest.mark.parametrize("what", EVERY)
def test_bad_input_is_named_with_its_place_and_its_cure_in_one_sentence(what) -> None:
    call, expected = EVERY[what]
    with pytest.raises(fg.ProblemError) as caught:
        call()
    message = str(caught.value)
    assert re.search(expected, message), message
    assert "\n" not in message
    assert len(message) < 400


def test_a_problem_error_can_be_caught_as_a_value_error() -> None:
    assert issubclass(fg.ProblemError, ValueError)
    assert issubclass(fg.DivergenceWarning, RuntimeWarning)


@pytest.mark.parametrize("step_size", [1e6, 10**30, 1e90])
def test_a_bound_at_an_absurd_step_is_a_bound_with_a_warning_and_not_an_overflow(step_size) -> None:
    with pytest.warns(RuntimeWarning, match="The bound is (inf|nan), since"):
        found = bound(step_size)
    assert not found.holds
    assert found.vacuous


def test_constants_that_are_lost_come_with_a_cure() -> None:
    cure = (
        r"are not finite at step_size 1e\+90; "
        r"use a smaller step_size, or rewards in a larger unit\."
    )
    with pytest.warns(RuntimeWarning, match=cure):
        fg.theory.constants(golden.federation(), fg.OnPolicyTD(), step_size=1e90)


@pytest.mark.parametrize("whole", [1e1, np.float64(10), np.float32(10)], ids=lambda n: type(n))
def test_a_float_that_is_whole_is_a_number_of_steps(whole) -> None:
    assert run(num_steps=whole, sync_period=2.0).data.equals(run(num_steps=10).data)


def test_a_whole_number_is_a_step_size() -> None:
    with pytest.warns(fg.DivergenceWarning):
        data = fg.run(noise(), linear_pull(), step_size=10**30, sync_period=1, num_steps=20).data
    assert int(data.diverged_at[0]) > 0
