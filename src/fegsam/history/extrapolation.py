"""Richardson-Romberg extrapolation: two runs with different step sizes, without their first bias.

With a constant step size the average settles around a point whose distance from the fixed point
is proportional to the step size, up to a term of second order. Two runs of the same seeds share
their paths, so their difference has little noise.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError, shown
from fegsam.history.history import History
from fegsam.problem.checks import flat_params

_AVERAGES = ("final_params", "tail_params", "average_params")
_EQUAL = (
    "algorithm",
    "num_agents",
    "method",
    "sync_period",
    "periods",
    "schedule",
    "num_steps",
    "tail",
    "tail_over",
    "sampling",
    "seeds",
    "fingerprint",
)
"""The settings in which the two runs agree."""


def extrapolated(
    coarse: History, fine: History, *, fixed_point: ArrayLike | None = None
) -> xr.Dataset:
    """The averages of two runs, extrapolated to a step size of zero.

    Parameters
    ----------
    coarse, fine : History
        Runs with the same settings, but for the step size; `fine` has the smaller one, usually half
        of that of `coarse`. A schedule multiplies both. What a run still remembers of its start
        does not cancel: run until the start is forgotten, which takes long if the schedule falls,
        and may never happen if it falls like 1/t.
    fixed_point : (d,) array, optional
        Measure the squared 2-norm of the error against it, too.

    Returns
    -------
    xarray.Dataset
        `final_params`, and `tail_params` and `average_params` where both runs have them; with a
        fixed point also `final_squared_error_2` and so on.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> settings = {"sync_period": 5, "num_steps": 200, "tail": 0.5, "engine": "reference"}
    >>> coarse, fine = (
    ...     fg.run(fed, fg.QLearning(), step_size=size, **settings) for size in (0.2, 0.1)
    ... )
    >>> sorted(fg.extrapolated(coarse, fine).data_vars)
    ['final_params', 'tail_params']
    """
    for name, history in (("coarse", coarse), ("fine", fine)):
        if not isinstance(history, History):
            raise ProblemError(f"{name} is {shown(history)}; give the History of a run.")
    _check_pair(coarse, fine)
    ratio = coarse.settings.step_size / fine.settings.step_size
    found = xr.Dataset(
        {
            name: (ratio * fine.data[name] - coarse.data[name]) / (ratio - 1.0)
            for name in _AVERAGES
            if name in coarse.data and name in fine.data
        }
    )
    if fixed_point is not None:
        truth = flat_params(fixed_point, "fixed_point", found.sizes["param"])
        for name in list(found.data_vars):
            error = ((found[name] - xr.DataArray(truth, dims="param")) ** 2).sum("param")
            found[str(name).replace("params", "squared_error_2")] = error
    return found


def _check_pair(coarse: History, fine: History) -> None:
    for name in _EQUAL:
        one, other = getattr(coarse.settings, name), getattr(fine.settings, name)
        if one != other:
            both = " and ".join("none" if each == "" else shown(each) for each in (one, other))
            raise ProblemError(
                f"The two histories differ in {name} ({both}); only their step sizes may differ: "
                f"give both runs the same {name}."
            )
    if not np.array_equal(coarse.settings.record, fine.settings.record):
        raise ProblemError(
            "The two histories have different recorded times; give both runs the same record."
        )
    if not fine.settings.step_size < coarse.settings.step_size:
        raise ProblemError(
            f"fine has the step size {fine.settings.step_size:g} and coarse "
            f"{coarse.settings.step_size:g}; give the run with the smaller one as fine."
        )
