"""A hash of everything that a run depends on: its problem, its algorithm and its start."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.compilation import rule_key
from fegsam.data.federation import DataFederation
from fegsam.problem.federation import Problem


def describe(algorithm: Algorithm) -> str:
    """The name of an algorithm, with its numbers and words.

    >>> import fegsam as fg
    >>> describe(fg.OnPolicyTD(horizon=3))
    'OnPolicyTD(horizon=3)'
    """
    scalars = [
        f"{name}={value!r}"
        for name, value in vars(algorithm).items()
        if isinstance(value, int | float | str) or dataclasses.is_dataclass(value)
    ]
    return f"{type(algorithm).__name__}({', '.join(scalars)})"


def content_fingerprint(
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    initial: np.ndarray,
    known: np.ndarray | None = None,
) -> str:
    """A hash of everything that a run depends on and that its settings do not hold."""
    state = hashlib.sha256(
        problem.fingerprint().encode() + describe(algorithm).encode() + initial.tobytes()
    )
    for value in vars(algorithm).values():
        if isinstance(value, np.ndarray):
            state.update(str(value.shape).encode() + value.tobytes())
        elif callable(value):
            state.update(_rule_content(value))
    # The settings hold the version of the package, and so of its own rules.
    if not type(algorithm).__module__.startswith("fegsam."):
        state.update(_rule_content(algorithm.rule))
    if known is not None:
        state.update(known.tobytes())
    return state.hexdigest()


def _rule_content(rule: Callable[..., Any]) -> bytes:
    """A hash of the rule's code; without one, the rule's id in this process."""
    return (rule_key(rule) or f"{os.getpid()} {id(rule)}").encode()
