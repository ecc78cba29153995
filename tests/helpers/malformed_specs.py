"""Three studies in TOML, and what can be wrong with one: for each mistake the text and a part of
what must be said of it."""

from __future__ import annotations

import re

TABULAR = """\
# Speed-up of tabular TD.
[study]
name = "speed-up"
title = "Linear speed-up"
seeds = 3
engine = "cpu"

[problem]
generator = "garnet"
states = 6
actions = 3
branching = 4
discount = 0.7
seed = 0

[problem.behavior]
kind = "random"
count = 4
seed = 1
heterogeneity = 0.5

[problem.target]
kind = "uniform"

[algorithm]
name = "off_policy_tabular_td"
horizon = 2

[run]
num_steps = 200
record = { points = 21 }
sampling = "markov"

[grid]
num_agents = [1, 4]
sync_period = [1, 10]
step_size = [0.1,
    0.05]

[[figures]]
kind = "error_curves"
by = "num_agents"

[[figures]]
kind = "speed_up"
by = "num_agents"
exact = true

[claim]
slope_low = -1.2
slope_high = -0.8
"""

LINEAR = """\
[study]
name = "heterogeneity"
seeds = [3, 5]

[problem]
generator = "random_walk"
states = 5
discount = 0.6

[problem.behavior]
kind = "mixed"
count = "agents"
seed = 4

[problem.target]
kind = "uniform"

[problem.features]
kind = "polynomial"
dim = 2

[problem.environments]
count = "agents"
rewards = 0.1
seed = 0

[algorithm]
name = "off_policy_linear_td"

[grid]
num_agents = 3
sync_period = [1, 5]
step_size = 0.05
num_steps = 100
horizon = [1, 2]
heterogeneity = [0.0, 0.5]
problem.environments.transitions = [0, 0.2]
sampling = ["markov", "iid"]
"""

NOISE = """\
[study]
name = "coin"

[problem]
generator = "noise"
kernels = [[0.5, 0.5], [0.5, 0.5]]
matrices = [[[-1.0]], [[-1.0]]]
offsets = [[0.0], [1.0]]

[algorithm]
name = "linear_sa"

[run]
num_steps = 1000
initial_params = 2

[grid]
num_agents = [2, 4]
sync_period = ["corollary", "advised", 1]
step_size = "corollary"
"""


def replaced(old: str, new: str, text: str = TABULAR) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def without(table: str, text: str = TABULAR) -> str:
    """The text without a table and its keys."""
    head, _, tail = text.partition(f"[{table}]\n")
    return head + tail[tail.index("\n[") + 1 :]


MALFORMED = {
    # Missing tables and keys.
    "no study": (without("study"), "study is missing"),
    "no problem": (without("problem"), "line 8: problem.generator is missing"),
    "no algorithm": (without("algorithm"), "algorithm is missing"),
    "no grid": (TABULAR.split("[grid]")[0], "grid is missing"),
    "empty": ("", "study is missing"),
    "no run": (without("run"), "run.num_steps is missing"),
    "no name": (replaced('name = "speed-up"\n', ""), "line 2: study.name is missing"),
    "no discount": (replaced("discount = 0.7\n", ""), "line 8: problem.discount is missing"),
    "no kind": (replaced('kind = "random"\n', ""), "line 16: problem.behavior.kind is missing"),
    "no count": (replaced("count = 4\n", ""), "line 16: problem.behavior.count is missing"),
    "no agents": (replaced("num_agents = [1, 4]\n", ""), "line 34: grid.num_agents is missing"),
    "no step size": (
        replaced("step_size = [0.1,\n    0.05]\n", ""),
        "line 34: grid.step_size is missing",
    ),
    "no target": (without("problem.target"), "needs the table [problem.target]"),
    "no behaviour": (
        without("problem.target", without("problem.behavior")).replace(
            '"off_policy_tabular_td"\nhorizon = 2', '"q_learning"'
        ),
        "needs the table [problem.behavior]",
    ),
    "no features": (
        replaced("off_policy_tabular_td", "on_policy_td"),
        "line 26: algorithm.name is 'on_policy_td', which needs the",
    ),
    "no figure kind": (replaced('kind = "speed_up"\n', ""), "line 44: figures[1].kind is missing"),
    # Wrong types.
    "text for a number": (
        replaced("states = 6", 'states = "six"'),
        "line 10: problem.states is 'six'",
    ),
    "fraction for a whole number": (
        replaced("actions = 3", "actions = 2.5"),
        "line 11: problem.actions is 2.5",
    ),
    "truth for a number": (
        replaced("discount = 0.7", "discount = true"),
        "line 13: problem.discount is true",
    ),
    "list for a number": (
        replaced("branching = 4", "branching = [4]"),
        "line 12: problem.branching is a list",
    ),
    "number for text": (replaced('name = "speed-up"', "name = 3"), "line 3: study.name is 3"),
    "number for a table": (without("run") + "\n[x]\n", "x is not a known table"),
    "table for a number": (
        replaced("num_steps = 200", "num_steps = { a = 1 }"),
        "line 30: run.num_steps is a table",
    ),
    "date for a number": (
        replaced("num_steps = 200", "num_steps = 2024-01-01"),
        "line 30: run.num_steps is datetime.date",
    ),
    "text in an axis": (replaced("[1, 4]", '[1, "4"]'), "line 35: grid.num_agents[1] is '4'"),
    "list in an axis": (replaced("[1, 4]", "[1, [4]]"), "line 35: grid.num_agents[1] is a list"),
    "text for truth": (
        replaced("exact = true", 'exact = "yes"'),
        "line 47: figures[1].exact is 'yes'",
    ),
    "figures as a table": (
        TABULAR.replace("[[figures]]", "[figures]", 1).split("[[")[0],
        "line 40: figures is a table",
    ),
    "claim as a number": ("claim = 3\n" + TABULAR.split("[claim]")[0], "line 1: claim is 3"),
    "seeds as text": (replaced("seeds = 3", 'seeds = "three"'), "line 5: study.seeds is 'three'"),
    "seeds as a fraction": (replaced("seeds = 3", "seeds = 3.5"), "line 5: study.seeds is 3.5"),
    "record as text": (replaced("{ points = 21 }", '"all"'), "line 31: run.record is 'all'"),
    # Unknown names.
    "unknown table": (
        replaced("[algorithm]", "[algoritm]"),
        "line 25: algoritm is not a known table: did you mean 'algorithm'?",
    ),
    "unknown key": (
        replaced("branching", "branchin"),
        "line 12: problem.branchin is not a known key",
    ),
    "unknown generator": (
        replaced('"garnet"', '"garnett"'),
        "line 9: problem.generator is 'garnett', which is not known: did you mean 'garnet'?",
    ),
    "unknown kind": (
        replaced('"random"', '"randon"'),
        "line 17: problem.behavior.kind is 'randon', which is not known: did you mean 'random'?",
    ),
    "unknown algorithm": (
        replaced("off_policy_tabular_td", "off_policy_td"),
        "line 26: algorithm.name is 'off_policy_td'",
    ),
    "unknown engine": (
        replaced('engine = "cpu"', 'engine = "gpu"'),
        "line 6: study.engine is 'gpu', which is not known: did you mean 'cpu'?",
    ),
    "unknown sampling": (
        replaced('"markov"', '"markof"'),
        "line 32: run.sampling is 'markof', which is not known: did you mean 'markov'?",
    ),
    "unknown axis": (
        replaced("sync_period =", "sync_perod ="),
        "line 36: grid.sync_perod is not a known axis: did you mean 'sync_period'?",
    ),
    "unknown axis of a table": (
        replaced("sync_period =", "problem.size = 3\nsync_period ="),
        "line 36: grid.problem.size is not a known key",
    ),
    "unknown figure": (
        replaced('"speed_up"', '"speedup"'),
        "line 45: figures[1].kind is 'speedup', which is not known: did you mean 'speed_up'?",
    ),
    "figure by an unknown axis": (
        replaced('by = "num_agents"\n\n', 'by = "agents"\n\n'),
        "line 42: figures[0].by is 'agents'",
    ),
    "unknown schedule": (
        replaced("[1, 10]", '"corolary"'),
        "line 36: grid.sync_period is 'corolary'",
    ),
    "key of another kind": (
        replaced('kind = "uniform"', 'kind = "uniform"\nseed = 1'),
        "line 24: problem.target.seed is not a known key here",
    ),
    "misspelt table": (
        replaced("[problem.target]", "[problem.targets]"),
        "line 22: problem.targets is not a known table: did you mean 'target'?",
    ),
    "unknown key inside": (
        replaced("points = 21", "point = 21"),
        "line 31: run.record.point is not a known key here: did you mean 'points'?",
    ),
    # NaN, infinite, negative, out of range.
    "NaN discount": (
        replaced("discount = 0.7", "discount = nan"),
        "line 13: problem.discount is nan",
    ),
    "NaN step size": (
        replaced("step_size = [0.1,", "step_size = [nan,"),
        "line 37: grid.step_size[0] is nan",
    ),
    "infinite step size": (replaced("    0.05]", "    inf]"), "line 37: grid.step_size[1] is inf"),
    "NaN threshold": (replaced("-1.2", "nan"), "line 50: claim.slope_low is nan"),
    "NaN heterogeneity": (
        replaced("heterogeneity = 0.5", "heterogeneity = nan"),
        "line 20: problem.behavior.heterogeneity is nan",
    ),
    "negative agents": (
        replaced("[1, 4]", "[1, -4]"),
        "line 35: grid.num_agents[1] is -4, but must be at least 1",
    ),
    "no agents at all": (replaced("[1, 4]", "0"), "line 35: grid.num_agents is 0"),
    "negative steps": (
        replaced("num_steps = 200", "num_steps = -200"),
        "line 30: run.num_steps is -200",
    ),
    "negative seed": (
        replaced("seed = 1\n", "seed = -1\n"),
        "line 19: problem.behavior.seed is -1",
    ),
    "negative run seed": (
        replaced("seeds = 3", "seeds = [0, -3]"),
        "line 5: study.seeds has -3 at [1]",
    ),
    "no seeds": (replaced("seeds = 3", "seeds = 0"), "line 5: study.seeds is 0"),
    "seed too large": (
        replaced("seeds = 3", f"seeds = [{2**64}]"),
        "line 5: study.seeds has a whole number of more than 18 digits at [0]",
    ),
    "negative step size": (
        replaced("step_size = [0.1,", "step_size = [-0.1,"),
        "line 37: grid.step_size[0] is -0.1, but must be above 0",
    ),
    "discount of one": (
        replaced("discount = 0.7", "discount = 1.0"),
        "line 13: problem.discount is 1.0, but must be below 1",
    ),
    "heterogeneity above one": (
        replaced("heterogeneity = 0.5", "heterogeneity = 1.5"),
        "line 20: problem.behavior.heterogeneity is 1.5, but must be at most 1",
    ),
    "horizon of zero": (replaced("horizon = 2", "horizon = 0"), "line 27: algorithm.horizon is 0"),
    "more successors than states": (
        replaced("branching = 4", "branching = 40"),
        "line 12: problem.branching is 40, but successors are distinct",
    ),
    "decay above one": (
        replaced("num_steps = 200", "num_steps = 200\noutput_decay = 1.5"),
        "line 31: run.output_decay is 1.5",
    ),
    "times after the end": (
        replaced("{ points = 21 }", "[0, 300]"),
        "line 31: run.record has time 300, but num_steps is 200",
    ),
    "too few start parameters": (
        replaced("num_steps = 200", "num_steps = 200\ninitial_params = [1, 2]"),
        "line 31: run.initial_params has shape (2,)",
    ),
    "ragged array": (
        replaced("num_steps = 200", "num_steps = 200\ninitial_params = [1, [2]]"),
        "line 31: run.initial_params has rows of different lengths",
    ),
    "text in an array": (
        replaced("num_steps = 200", 'num_steps = 200\ninitial_params = [1, "2"]'),
        "line 31: run.initial_params has an entry '2'",
    ),
    "missing file": (
        replaced("num_steps = 200", 'num_steps = 200\ninitial_params = "none.npz:a"'),
        "line 31: run.initial_params is 'none.npz:a', but",
    ),
    "too few agents assigned": (
        replaced("seed = 0\n", "seed = 0\nassignment = [0, 1]\n"),
        "line 15: problem.assignment has shape (2,), but must name the kinds of 4",
    ),
    "a distribution that does not sum to one": (
        replaced("seed = 0\n", "seed = 0\ninitial_distribution = [0.5, 0, 0, 0, 0, 0]\n"),
        "line 15: problem.initial_distribution sums to 0.5",
    ),
    # Huge.
    "huge grid": (
        replaced("[1, 10]", str(list(range(1, 50_000)))),
        "line 34: grid has 199996 cells, but a study has at most 100000",
    ),
    "huge axis": (
        replaced("[1, 10]", str(list(range(1, 200_000)))),
        "line 36: grid.sync_period has 199999 values",
    ),
    "huge whole number": (
        replaced("num_steps = 200", f"num_steps = {10**30}"),
        "line 30: run.num_steps is a whole number of more than 18 digits",
    ),
    "huge step size": (
        replaced("step_size = [0.1,", f"step_size = [{10**400},"),
        "line 37: grid.step_size[0] is a whole number of more",
    ),
    "number beyond all": (
        replaced("num_steps = 200", f"num_steps = {'9' * 5000}"),
        "line 30: the text is not valid TOML (a number is too long",
    ),
    "deep nesting": (
        replaced("[1, 4]", "[" * 5000 + "]" * 5000),
        "line 35: the text is not valid TOML",
    ),
    "huge environment": (
        replaced("states = 6", f"states = {10**12}"),
        "line 10: problem.states is 1000000000000, but must be at most",
    ),
    "empty axis": (replaced("[1, 4]", "[]"), "line 35: grid.num_agents is an empty list"),
    "value twice": (
        replaced("[1, 10]", "[1, 10, 1]"),
        "line 36: grid.sync_period[2] is 1, which the list already has",
    ),
    "axis twice": (
        replaced("[1, 10]", "[1, 10]\nhorizon = 1\nalgorithm.horizon = 2"),
        "grid.horizon sets the same key as another axis",
    ),
    # Not TOML.
    "key twice": (replaced("states = 6", "states = 6\nstates = 7"), "line 11: column"),
    "table twice": (TABULAR + "\n[run]\n", "line 53: column"),
    "no value": (replaced("states = 6", "states ="), "line 10: column"),
    "no equals sign": (replaced("states = 6", "states 6"), "line 10: column"),
    "open text": (replaced('"garnet"', '"garnet'), "line 9: column"),
    "open list": (TABULAR.split("    0.05]")[0], "the text ends too early"),
    "prose": ("Dear fegsam, run something.\n", "line 1: column"),
    "zero byte": (replaced("seeds = 3", "seeds = \0"), "line 5: column"),
    # Combinations that cannot work.
    "noise for an MDP's algorithm": (
        replaced("linear_sa", "q_learning", NOISE),
        "line 11: algorithm.name is 'q_learning', which needs a [problem]",
    ),
    "MDP for noise's algorithm": (
        replaced("off_policy_tabular_td", "linear_sa").replace("horizon = 2\n", ""),
        "line 26: algorithm.name is 'linear_sa', which needs a [problem]",
    ),
    "policies for noise": (
        replaced("\n[algorithm]", '\n[problem.target]\nkind = "uniform"\n[algorithm]', NOISE),
        "line 10: problem.target is for MDPs",
    ),
    "chain that is not ergodic": (
        replaced("[[0.5, 0.5], [0.5, 0.5]]", "[[1, 0], [0, 1]]", NOISE),
        "line 4: problem cannot be used",
    ),
    "dependent features": (
        replaced("dim = 2", "dim = 7", LINEAR),
        "problem.features.dim is 7, but there are 5 states",
    ),
    "heterogeneity of the uniform policy": (
        replaced('"random"\ncount = 4\nseed = 1\nheterogeneity = 0.5', '"uniform"').replace(
            "[1, 10]", "1\nheterogeneity = [0.5]"
        ),
        "grid.heterogeneity[0] is not a known key here (kind = 'uniform'): drop it",
    ),
    "kinds that do not match": (
        replaced("[algorithm]", "[problem.environments]\ncount = 3\nseed = 0\n\n[algorithm]"),
        "line 8: problem cannot be used (there are 3 MDPs and 4",
    ),
    "corollary without a norm": (
        replaced("[[[-1.0]], [[-1.0]]]", "[[[1.0]], [[1.0]]]", NOISE),
        "line 19: grid.sync_period[0] is 'corollary', which does not work here",
    ),
}

WRONG_BYTES = {
    "UTF-16": (TABULAR.encode("utf-16"), "line 1: the text is not UTF-8"),
    "Latin-1": (
        TABULAR.replace("Linear", "Línear").encode("latin-1"),
        "line 4: the text is not UTF-8",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n", "line 1: the text is not UTF-8"),
}


def one_sentence(message: str) -> str:
    """The message, if it is one."""
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not re.search(r"[.?] [A-Z]", message), message
    assert "pydantic" not in message
    assert "Input should" not in message
    assert len(message) < 400
    return message
