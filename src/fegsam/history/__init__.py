"""Labelled results of a run, and their storage."""

from fegsam.history.history import History, load_history

__all__ = ["History", "load_history"]


def __dir__() -> list[str]:
    return list(__all__)
