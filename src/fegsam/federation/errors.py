"""What goes wrong in a federation, said in one sentence."""

from __future__ import annotations

from fegsam.errors import ProblemError


class FederationError(ProblemError):
    """A federation that cannot go on as it is: names what is wrong and the cure."""


class StateError(FederationError):
    """A file of stored state that is damaged, held by another process, or of another experiment."""
