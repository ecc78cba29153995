"""What a rule reads of a transition: its reward, its discount and its importance ratio.

The transitions of a simulated path have theirs in the rule's tables, those of recorded data on the
path itself. A rule calls these functions and need not know which; compiled code chooses by the
path's type, at no cost.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from fegsam.algorithms.rule import ONE, ZERO, Path, RecordedPath


def reward(path: Path | RecordedPath, tables: Any, step: Any) -> Any:
    """The reward of the transition from row `step` to the next."""
    return (_recorded_reward if isinstance(path, RecordedPath) else _table_reward(tables.rewards))(
        path, tables, step
    )


def cell_reward(path: Path | RecordedPath, tables: Any, step: Any, cell: Any) -> Any:
    """The same for a rule that has the number of the visited cell, s * A + a, already.

    A compiler does not find out that `reward` computes it again, which takes Q-learning 5 % longer.
    """
    if isinstance(path, RecordedPath):
        return _recorded_cell_reward(path, tables, step, cell)
    return _reward_of_cell(path, tables, step, cell)


def discount(path: Path | RecordedPath, tables: Any, step: Any) -> Any:
    """The discount of what follows the transition from row `step`; 0 where an episode ends."""
    if isinstance(path, RecordedPath):
        return _recorded_discount(path, tables, step)
    return _table_discount(tables.discount)(path, tables, step)


def ratio(path: Path | RecordedPath, tables: Any, step: Any) -> Any:
    """The importance ratio of the action in row `step`."""
    return (_recorded_ratio if isinstance(path, RecordedPath) else _table_ratio)(path, tables, step)


def is_gap(path: Path | RecordedPath, step: Any) -> Any:
    """Whether no transition leads on from row `step`: it is the last one of an episode."""
    return path.gaps[step] if isinstance(path, RecordedPath) else False


def _recorded_reward(path, tables, step):
    return path.rewards[step]


def _recorded_cell_reward(path, tables, step, cell):
    return path.rewards[step]


def _reward_of_cell(path, tables, step, cell):
    return tables.rewards[path.mdp, cell]


def _table_reward(rewards):
    return _cell_reward if rewards.ndim == 2 else _action_reward


def _cell_reward(path, tables, step):
    return tables.rewards[path.mdp, path.states[step] * tables.num_actions + path.actions[step]]


def _action_reward(path, tables, step):
    return tables.rewards[path.mdp, path.states[step], path.actions[step]]


def _recorded_discount(path, tables, step):
    return path.discounts[step]


def _table_discount(discounts):
    return _transition_discount if getattr(discounts, "ndim", 0) else _one_discount


def _one_discount(path, tables, step):
    return tables.discount


def _transition_discount(path, tables, step):
    # An axis along which the discounts do not vary has one entry.
    each = tables.discount
    return each[
        path.mdp if each.shape[0] > 1 else ZERO,
        path.states[step] if each.shape[1] > 1 else ZERO,
        path.actions[step] if each.shape[2] > 1 else ZERO,
        path.states[step + ONE] if each.shape[3] > 1 else ZERO,
    ]


def _recorded_ratio(path, tables, step):
    return path.ratios[step]


def _table_ratio(path, tables, step):
    return tables.ratios[path.policy, path.states[step], path.actions[step]]


# None of these asks Numba to inline it: where the call follows a loop, what Numba then makes of the
# rule for a GPU is wrong. The compilers behind Numba inline them all the same.


def _is_recorded(path: types.Type) -> bool:
    return isinstance(path, types.NamedTuple) and path.instance_class is RecordedPath


@overload(reward)
def _reward(path, tables, step):
    if _is_recorded(path):
        return _recorded_reward
    return _table_reward(tables.types[tables.fields.index("rewards")])


@overload(cell_reward)
def _overload_cell_reward(path, tables, step, cell):
    return _recorded_cell_reward if _is_recorded(path) else _reward_of_cell


@overload(discount)
def _discount(path, tables, step):
    if _is_recorded(path):
        return _recorded_discount
    return _table_discount(tables.types[tables.fields.index("discount")])


@overload(ratio)
def _ratio(path, tables, step):
    return _recorded_ratio if _is_recorded(path) else _table_ratio


@overload(is_gap)
def _is_gap(path, step):
    if _is_recorded(path):
        return lambda path, step: path.gaps[step]
    return lambda path, step: False
