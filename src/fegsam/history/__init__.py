"""Labelled results of a run, and how they are kept."""

from fegsam.history.history import History, load_history

__all__ = ["History", "load_history"]
