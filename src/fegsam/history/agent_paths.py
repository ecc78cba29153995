"""The parameters of every agent at every step of a short run, for pictures of single agents.

A history keeps the agents' average alone, since an engine need not hold N copies.
`fegsam.agent_paths` makes some rounds again and keeps them all.
"""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, IntArray, integer
from fegsam.safe_files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class AgentPaths:
    """Where each agent was at each step, between synchronisations and at them.

    Attributes
    ----------
    params : (T + 1, N, d) array
        What each agent held after t steps, at a synchronisation just before it; NaN for agents that
        did not take part in the round.
    averages : (T + 1, d) array
        The agents' average after t steps, at a synchronisation just after it.
    syncs : (R,) array of int
        The times of the synchronisations.
    fixed_point : (d,) array
    features : (S, d) array, or None
        Where values are linear in the parameters, the features.
    num_actions : int
        A, where the parameters are a table of action values; else 0.
    grid : (int, int), or None
        Rows and columns, where the states are the cells of a grid.

    Examples
    --------
    >>> import fegsam as fg
    >>> world = fg.examples.grid_world(3, 4, discount=0.9)
    >>> fed = fg.Federation(world, fg.policies.random(12, 4, count=3, seed=0), num_agents=3)
    >>> agents = fg.agent_paths(fed, fg.QLearning(), step_size=0.2, sync_period=50, num_steps=200)
    >>> agents
    AgentPaths(agents=3, steps=200, synchronisations=4, parameters=48)
    >>> agents.values().shape
    (3, 12)
    """

    params: FloatArray
    averages: FloatArray
    syncs: IntArray
    fixed_point: FloatArray
    features: FloatArray | None = None
    num_actions: int = 0
    grid: tuple[int, int] | None = None

    def __repr__(self) -> str:
        steps, agents, dimension = self.params.shape
        return (
            f"AgentPaths(agents={agents}, steps={steps - 1}, synchronisations={len(self.syncs)}, "
            f"parameters={dimension})"
        )

    def _repr_html_(self) -> str:
        from fegsam.history.moving_svg import moving_picture

        return moving_picture(self)

    def values(self, time: int | None = None) -> FloatArray:
        """(N, S): what each agent thinks each state is worth after `time` steps, by default all.

        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
        >>> fg.agent_paths(fed, fg.QLearning(), step_size=0.2, sync_period=5, num_steps=9).values(
        ...     0
        ... ).tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
        """
        return self.value_of(self.params[self._place(time)])

    def value_of(self, params: FloatArray) -> FloatArray:
        """(..., S): the values that parameters (..., d) stand for.

        >>> import numpy as np
        >>> one = np.ones((1, 1))
        >>> AgentPaths(one[None], one, np.arange(0), one[0], 2 * one).value_of(one)
        array([[2.]])
        """
        if self.num_actions:
            return params.reshape(*params.shape[:-1], -1, self.num_actions).max(axis=-1)
        if self.features is None:
            raise ProblemError(
                "The parameters are not values of states, so no value can be drawn; draw the "
                "paths instead, kind='paths'."
            )
        return params @ self.features.T

    def plot(
        self,
        axes: Axes | None = None,
        *,
        kind: str = "paths",
        save: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Draw the agents with matplotlib.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            For the paths; by default a new figure, one column of a paper wide.
        kind : "paths" or "values"
            Their paths in the plane of two parameters; or their values as heat maps, agent by
            agent against the average.
        save : path, optional
            Write the figure, too: a PDF, SVG or PNG file by its ending.
        options
            Of paths: `plane`, two numbers of parameters, by default the plane in which the agents
            move most. Of values: `time`, the number of steps, by default just before the last
            synchronisation; `grid`, rows and columns, by default those of the MDP.

        Returns
        -------
        matplotlib Axes, or Figure for the values

        Examples
        --------
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
        >>> agents = fg.agent_paths(fed, fg.QLearning(), step_size=0.2, sync_period=5, num_steps=20)
        >>> len(agents.plot(plane=(0, 1)).lines) > 3
        True
        """
        from fegsam.history.plot import save_figure
        from fegsam.history.plot_agents import plot_paths, plot_values

        if kind == "paths":
            drawn: Any = plot_paths(self, axes, **options)
        elif kind == "values" and axes is None:
            drawn = plot_values(self, **options)
        else:
            raise ProblemError(
                f"kind is {shown(kind)}; give 'paths', or 'values' without axes: it has several."
            )
        if save is not None:
            save_figure(drawn, save)
        return drawn

    def save(
        self, path: str | os.PathLike[str], *, plane: tuple[int, int] | None = None
    ) -> pathlib.Path:
        """Write an SVG picture in which the agents move, drift apart and meet.

        Every browser plays it, and a program that does not shows the whole paths.

        >>> import tempfile
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
        >>> agents = fg.agent_paths(fed, fg.QLearning(), step_size=0.2, sync_period=5, num_steps=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     agents.save(f"{folder}/agents.svg").name
        'agents.svg'
        """
        from fegsam.history.moving_svg import moving_picture

        target = pathlib.Path(path)
        if target.suffix != ".svg":
            raise ProblemError(
                f"path is {shown(str(path))}; give a name that ends in .svg, or draw a still "
                "figure with plot()."
            )
        with whole(target) as temporary:
            temporary.write_text(moving_picture(self, plane), encoding="utf-8")
        return target

    def _place(self, time: int | None) -> int:
        last = len(self.params) - 1
        return last if time is None else integer(time, "time", least=0, most=last)


def in_plane(
    agents: AgentPaths, plane: tuple[int, int] | None
) -> tuple[FloatArray, FloatArray, FloatArray, tuple[str, str]]:
    """The paths (T + 1, N, 2), averages (T + 1, 2) and fixed point (2,), and what the axes are.

    Without a plane, and with more than two parameters, it is the plane through the fixed point in
    which the agents move most.
    """
    dimension = agents.params.shape[2]
    if dimension == 1:
        raise ProblemError("One parameter has no plane; draw its error with history.plot().")
    if plane is None and dimension > 2:
        off = agents.params[np.isfinite(agents.params).all(axis=2)] - agents.fixed_point
        axes = np.linalg.svd(off, full_matrices=False)[2][:2].T
        names = "first direction of movement", "second direction of movement"
        return (
            (agents.params - agents.fixed_point) @ axes,
            (agents.averages - agents.fixed_point) @ axes,
            np.zeros(2),
            names,
        )
    try:
        first, second = (0, 1) if plane is None else plane
    except (TypeError, ValueError):
        raise ProblemError(f"plane is {shown(plane)}; give two numbers of parameters.") from None
    chosen = [integer(which, "plane", least=0, most=dimension - 1) for which in (first, second)]
    names = f"parameter {chosen[0]}", f"parameter {chosen[1]}"
    return (
        agents.params[:, :, chosen],
        agents.averages[:, chosen],
        agents.fixed_point[chosen],
        names,
    )
