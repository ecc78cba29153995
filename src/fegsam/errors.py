"""Errors for users, each one sentence that names the value, the place and the cure."""

from __future__ import annotations

import numpy as np


def shown(value: object) -> str:
    """`value` as a message shows it: its repr, on one line of at most 80 characters.

    An array that does not fit is shown by its shape, and a value whose repr fails by its type.

    >>> shown(0.5), shown(10**5000), shown(np.ones(1000))
    ('0.5', 'a value of type int', 'an array of shape (1000,)')
    """
    try:
        text = " ".join(repr(value).split())
        if isinstance(value, np.ndarray) and len(text) > 80:
            return f"an array of shape {value.shape}"
    except Exception:  # the repr of a very long int fails, and a user's object may raise anything
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


class ProblemError(ValueError):
    """A problem, a setting or a stored result that cannot be used.

    Examples
    --------
    >>> import fegsam as fg
    >>> fg.MDP([[[1.0]]], [[0.0]], discount=1.5)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: discount is 1.5, but must lie strictly between 0 and 1: give such a
    number
    """


class SpecError(ProblemError):
    """A study's TOML file that cannot be used; the message names the file, the line and the key.

    Examples
    --------
    >>> from fegsam.experiments.spec.study import parse_study
    >>> parse_study("[stduy]", "mine.toml")
    Traceback (most recent call last):
    fegsam.errors.SpecError: mine.toml, line 1: stduy is not a known table: did you mean 'study'?
    """


class DivergenceWarning(RuntimeWarning):
    """A run diverged; its history is NaN from `diverged_at` on.

    A parameter beyond 1e140 counts as no longer finite, since the sum of its square over parameters
    and agents would overflow soon after. A recorded error that overflows before that, as the
    `value_error` may with huge features, ends its seed in the same way.

    Examples
    --------
    >>> import warnings
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     history = fg.run(coin, average, step_size=5.0, sync_period=1, num_steps=1000)
    >>> caught[0].category is fg.DivergenceWarning, bool(history.data.diverged_at[0] > 0)
    (True, True)
    """
