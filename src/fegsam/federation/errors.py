"""The errors of a federation, each with a message of one sentence."""

from __future__ import annotations

from fegsam.errors import ProblemError


class FederationError(ProblemError):
    """A federation cannot continue; the message names the fault and the cure."""


class StateError(FederationError):
    """A file of stored state is damaged, locked by another process, or of another experiment."""
