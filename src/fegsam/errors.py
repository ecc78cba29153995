"""What goes wrong for a user, said in one sentence that names the value, the place and the cure."""

from __future__ import annotations


class ProblemError(ValueError):
    """A problem, a setting or a stored result that cannot be used as it was given."""


class SpecError(ProblemError):
    """A study's TOML file that cannot be used: names the file, the line and the key."""


class DivergenceWarning(RuntimeWarning):
    """A run left the finite numbers; its history is NaN from `diverged_at` on."""
