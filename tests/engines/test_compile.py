"""Compiled rules: kept on disk by their content, never taken for one another, and explained where
they do not compile."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
import pathlib
import re
import types
from collections.abc import Callable

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

import fegsam as fg
from fegsam.compilation import rule_key
from helpers import golden, processes

ALPHA, T = 0.1, 20
SETTINGS = {"step_size": ALPHA, "sync_period": 3, "num_steps": T, "fixed_point": [0.0]}


def still() -> fg.MarkovNoise:
    """No noise at all: one state. The loop of one agent compiles in less time than that of two."""
    return fg.MarkovNoise([[1.0]], num_agents=1)


def final(rule: Callable[..., None], engine: str = "cpu") -> float:
    history = fg.run(still(), fg.StochasticApproximation(rule, dim=1), **SETTINGS, engine=engine)
    return float(history.data.final_params[0, 0])


def pulled_to_one(gain: float) -> float:
    """Where theta += alpha gain (1 - theta) is after T steps from zero."""
    return 1 - (1 - ALPHA * gain) ** T


# --- What a key depends on ------------------------------------------------------------------------

SOURCES = {
    "a constant": """
def rule(params, y, kind, out):
    out[0] = GAIN * (1.0 - params[0])
""",
    "an operator": """
def rule(params, y, kind, out):
    out[0] = GAIN OPERATOR params[0]
""",
    "a global number": """
gain = GAIN
def rule(params, y, kind, out):
    out[0] = gain * (1.0 - params[0])
""",
    "a global array": """
gains = np.array([1.0, GAIN])
def rule(params, y, kind, out):
    out[0] = gains[1] * (1.0 - params[0])
""",
    "a global tuple": """
gains = (1.0, (GAIN, 2))
def rule(params, y, kind, out):
    out[0] = gains[1][0] * (1.0 - params[0])
""",
    "an enclosed number": """
def make(gain):
    def rule(params, y, kind, out):
        out[0] = gain * (1.0 - params[0])
    return rule
rule = make(GAIN)
""",
    "an enclosed array": """
def make(gains):
    def rule(params, y, kind, out):
        out[0] = gains[0] * (1.0 - params[0])
    return rule
rule = make(np.array([GAIN]))
""",
    "a default": """
def rule(params, y, kind, out, gain=GAIN):
    out[0] = gain * (1.0 - params[0])
""",
    "a helper": """
@register_jitable
def pull(x):
    return GAIN * (1.0 - x)
def rule(params, y, kind, out):
    out[0] = pull(params[0])
""",
    "a helper's global": """
gain = GAIN
@register_jitable
def pull(x):
    return gain * (1.0 - x)
def rule(params, y, kind, out):
    out[0] = pull(params[0])
""",
    "a helper's default": """
@register_jitable
def pull(x, gain=GAIN):
    return gain * (1.0 - x)
def rule(params, y, kind, out):
    out[0] = pull(params[0])
""",
    "a helper's helper": """
@register_jitable
def times(x):
    return GAIN * x
@register_jitable
def pull(x):
    return times(1.0 - x)
def rule(params, y, kind, out):
    out[0] = pull(params[0])
""",
    "a compiled helper": """
@numba.njit
def pull(x):
    return GAIN * (1.0 - x)
def rule(params, y, kind, out):
    out[0] = pull(params[0])
""",
    "a number in a module": """
constants = types.ModuleType("constants")
constants.gain = GAIN
def rule(params, y, kind, out):
    out[0] = constants.gain * (1.0 - params[0])
""",
    "a helper in a module": """
@register_jitable
def _pull(x):
    return GAIN * (1.0 - x)
helpers = types.ModuleType("helpers")
helpers.pull = _pull
def rule(params, y, kind, out):
    out[0] = helpers.pull(params[0])
""",
    "a member of an enumeration": """
class Level(enum.IntEnum):
    HIGH = round(4 * GAIN)
def rule(params, y, kind, out):
    out[0] = Level.HIGH * (1.0 - params[0])
""",
}


def rule_from(source: str, gain: str = "0.5", operator: str = "-") -> Callable[..., None]:
    space = {
        "np": np,
        "numba": numba,
        "enum": enum,
        "types": types,
        "register_jitable": register_jitable,
    }
    space["__name__"] = "own_rules"
    exec(source.replace("GAIN", gain).replace("OPERATOR", operator), space)
    return space["rule"]


@pytest.mark.parametrize("what", SOURCES)
def test_whatever_decides_the_rule_decides_its_key(what) -> None:
    source = SOURCES[what]
    key = rule_key(rule_from(source))
    assert rule_key(rule_from(source)) == key, "the same rule again"
    changed = (
        rule_from(source, operator="+") if "OPERATOR" in source else rule_from(source, gain="0.25")
    )
    other = rule_key(changed)
    # A rule without a key is compiled in each process, so that nothing can be taken for it.
    assert key is None or other is None or other != key


def test_most_rules_have_a_key() -> None:
    keyed = {what for what, source in SOURCES.items() if rule_key(rule_from(source)) is not None}
    assert keyed >= {
        "a constant",
        "a global array",
        "an enclosed number",
        "an enclosed array",
        "a helper",
        "a helper's global",
    }
    own = (
        fg.OnPolicyTD(),
        fg.OffPolicyTabularTD(),
        fg.QLearning(),
        fg.OffPolicyLinearTD(),
        fg.OffPolicyLinearTD(preconditioned=True),
    )
    assert [algorithm for algorithm in own if rule_key(algorithm.rule) is None] == []
    assert (
        rule_key(fg.StochasticApproximation(rule_from(SOURCES["a helper"]), dim=1).rule) is not None
    )


def test_rules_are_told_apart_by_their_names_and_types_too() -> None:
    sources = [
        "1",
        "1.0",
        "True",
        "'1'",
        "(1,)",
        "np.array([1])",
        "np.array([1.0])",
        "np.float32(1)",
        "None",
    ]
    source = SOURCES["a global number"].replace("gain *", "")
    keys = [
        rule_key(rule_from(source.replace("out[0] = ", "out[0] = gain + "), gain=gain))
        for gain in sources
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


# --- Rules of one process -------------------------------------------------------------------------


def with_closure(gain: float) -> Callable[..., None]:
    def rule(params, y, kind, out):
        out[0] = gain * (1.0 - params[0])

    return rule


def with_default(gain: float) -> Callable[..., None]:
    def rule(params, y, kind, out, gain=gain):
        out[0] = gain * (1.0 - params[0])

    return rule


@pytest.mark.parametrize("make", [with_closure, with_default])
def test_rules_that_differ_in_what_they_close_over_are_not_taken_for_one_another(make) -> None:
    gains = (0.5, 2.0, 0.5)
    assert [final(make(gain)) for gain in gains] == pytest.approx(
        [pulled_to_one(gain) for gain in gains], rel=1e-13
    )


class Gain(enum.Enum):
    """A class has no content that a key could be made of."""

    HALF = 0.5


def test_a_rule_that_cannot_be_keyed_runs_all_the_same() -> None:
    def rule(params, y, kind, out):
        out[0] = Gain.HALF.value - math.tanh(params[0])

    assert rule_key(rule) is None
    x = 0.0
    for _ in range(T):
        x += ALPHA * (0.5 - math.tanh(x))
    assert final(rule) == pytest.approx(x, rel=1e-13)
    assert final(rule, engine="reference") == pytest.approx(x, rel=1e-13)


TYPED = """
def rule(params, path, t, tables):
    s = path.states[t]
    return s, tables.discount - params[s]
"""


@dataclasses.dataclass(frozen=True)
class TypedAtAPrompt:
    """An algorithm whose rule comes from no file: each state's parameter is pulled to the
    discount."""

    form, norm, window = "cell", "2", 1
    rule = staticmethod(rule_from(TYPED))

    def check(self, problem) -> None:
        """Any federation will do."""

    def dimension(self, problem) -> int:
        return problem.num_states

    def policies(self, problem):
        return problem.behavior_policies

    def tables(self, problem):
        return fg.QLearning().tables(problem)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_rule_typed_at_a_prompt_runs(engine) -> None:
    settings = {
        "step_size": 0.1,
        "sync_period": 3,
        "num_steps": 300,
        "engine": engine,
        "output_decay": 0.9,
    }
    history = fg.run(
        golden.federation(), TypedAtAPrompt(), **settings, fixed_point=[golden.DISCOUNT] * 2
    )
    np.testing.assert_allclose(history.data.final_params[0], golden.DISCOUNT, atol=1e-3)


# --- Rules that do not compile, or fail -----------------------------------------------------------


def listing_rule(params, y, kind, out):
    """Fine in plain Python; Numba knows no `tolist`."""
    scale = 0.5
    values = params.tolist()  # this line
    out[0] = scale * (1.0 - values[0])


def test_a_rule_that_numba_cannot_compile_is_shown_with_its_line_and_the_cure() -> None:
    with pytest.raises(fg.ProblemError) as caught:
        final(listing_rule)
    message = str(caught.value)
    lines, first = inspect.getsourcelines(listing_rule)
    line = first + next(i for i, text in enumerate(lines) if "this line" in text)
    assert "'listing_rule'" in message
    assert pathlib.Path(__file__).name in message
    assert re.search(rf"\b(line |:){line}\b", message), f"line {line} is not in: {message}"
    assert "tolist" in message
    assert "engine='reference'" in message
    assert "\n" not in message
    assert "\x1b" not in message, "no colours of a terminal"


def test_the_cure_works() -> None:
    assert final(listing_rule, engine="reference") == pytest.approx(pulled_to_one(0.5), rel=1e-13)


RAISING = """
import fegsam as fg

def rule(params, y, kind, out):
    if params[0] > {limit}:
        raise ValueError("too far")
    out[0] = 1.0 - params[0] + 0.5 * y

noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1000)
algorithm = fg.StochasticApproximation(rule, dim=1)
settings = dict(step_size=0.01, sync_period=50, fixed_point=[0.0])
for threads in (1, 2):
    engine = fg.engines.Cpu(threads=threads)
    try:
        fg.run(noise, algorithm, num_steps=10**6, seeds=range({seeds}), engine=engine, **settings)
    except ValueError as error:
        print(error)
    history = fg.run(noise, algorithm, num_steps=10, engine=engine, **settings)
    print(float(history.data.final_params[0, 0]) < {limit})
"""


@pytest.mark.parametrize("seeds", [1, 5], ids=["one-seed", "many-seeds"])
def test_a_rule_that_raises_ends_the_run_with_its_error_and_leaves_no_thread_waiting(seeds) -> None:
    """In a process of its own, since the fault would be a run that never ends."""
    code = RAISING.format(limit=0.5, seeds=seeds)
    assert processes.run(code).split("\n")[:-1] == ["too far", "True"] * 2


# --- The cache on disk ----------------------------------------------------------------------------

OWN_RULES = """
from numba.extending import register_jitable

@register_jitable
def pull(x):
    return GAIN * (1.0 - x)

def rule(params, y, kind, out):
    out[0] = pull(params[0])
"""
RUN_OWN_RULE = """
import fegsam as fg
import own_rules

noise = fg.MarkovNoise([[1.0]], num_agents=2)
algorithm = fg.StochasticApproximation(own_rules.rule, dim=1)
history = fg.run(noise, algorithm, step_size=0.1, sync_period=3, num_steps=20, fixed_point=[0.0])
print(float(history.data.final_params[0, 0]))
"""


def test_a_second_process_finds_everything_compiled_and_an_edited_helper_is_noticed(
    tmp_path,
) -> None:
    cache = tmp_path / "cache"
    path = processes.python_path(tmp_path)
    environment = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path}

    def files() -> dict[pathlib.Path, int]:
        """What is in the cache, and when it was written."""
        return {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb[ic]")}

    (tmp_path / "own_rules.py").write_text(OWN_RULES.replace("GAIN", "0.5"))
    with processes.on_terminal(RUN_OWN_RULE, **environment) as terminal:
        assert float(terminal.finish()) == pytest.approx(pulled_to_one(0.5), rel=1e-13)
    assert "compiling" in terminal.shown, "who is watching is told why it takes so long"
    kept = files()
    assert len(kept) > 2

    assert float(processes.run(RUN_OWN_RULE, **environment)) == pytest.approx(
        pulled_to_one(0.5), rel=1e-13
    )
    assert files() == kept, "something was compiled again"

    (tmp_path / "own_rules.py").write_text(OWN_RULES.replace("GAIN", "2.0"))
    assert float(processes.run(RUN_OWN_RULE, **environment)) == pytest.approx(
        pulled_to_one(2.0), rel=1e-13
    )
    now = files()
    assert {path: now.get(path) for path in kept} == kept, "what was there is still good"
    assert len(now) > len(kept)


LEVEL = 1.0


def to_level(params, y, kind, out):
    out[0] = LEVEL - params[0]


def test_a_rule_runs_with_the_globals_of_today(monkeypatch) -> None:
    """A function object that Numba has compiled keeps the globals of that time; a notebook's user
    changes them."""
    for level in (1.0, 3.0, 1.0):
        monkeypatch.setattr(f"{__name__}.LEVEL", level)
        assert final(to_level) == pytest.approx(level * pulled_to_one(1.0), rel=1e-13)


@register_jitable
def level_of_helper():
    return LEVEL


def test_a_helper_whose_globals_have_changed_is_refused(monkeypatch) -> None:
    def rule(params, y, kind, out):
        out[0] = level_of_helper() - params[0]

    assert final(rule) == pytest.approx(pulled_to_one(1.0), rel=1e-13)
    monkeypatch.setattr(f"{__name__}.LEVEL", 3.0)
    with pytest.raises(
        fg.ProblemError, match=r"helper 'level_of_helper'.*has changed.*define the helper again"
    ):
        final(rule)


def test_a_constant_in_a_module_within_a_module_is_part_of_the_key() -> None:
    outer, inner = types.ModuleType("outer"), types.ModuleType("outer.inner")
    outer.inner = inner
    space = {"outer": outer, "__name__": __name__}
    exec("def rule(params, y, kind, out):\n    out[0] = outer.inner.level - params[0]", space)
    keys = set()
    for inner.level in (1.0, 2.0):
        keys.add(rule_key(space["rule"]))
    assert len(keys) == 2
