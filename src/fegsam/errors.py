"""What goes wrong for a user, said in one sentence that names the value, the place and the cure."""

from __future__ import annotations


class ProblemError(ValueError):
    """A problem, a setting or a stored result that cannot be used as it was given.

    Examples
    --------
    >>> import fegsam as fg
    >>> fg.MDP([[[1.0]]], [[0.0]], discount=1.5)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: discount is 1.5, but must lie strictly between 0 and 1: give such a number
    """


class SpecError(ProblemError):
    """A study's TOML file that cannot be used: names the file, the line and the key.

    Examples
    --------
    >>> from fegsam.experiments.spec import parse_study
    >>> parse_study("[stduy]", "mine.toml")
    Traceback (most recent call last):
    fegsam.errors.SpecError: mine.toml, line 1: stduy is not a table that is known: did you mean 'study'?
    """


class DivergenceWarning(RuntimeWarning):
    """A run left the finite numbers; its history is NaN from `diverged_at` on.

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
