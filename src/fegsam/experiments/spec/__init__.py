"""A study as a TOML file: its text, its tables, the problems it describes, its grid and its cells.
Needs pydantic."""

from fegsam.experiments.spec.study import EXAMPLE, Study, load_study, parse_study

__all__ = ["EXAMPLE", "Study", "load_study", "parse_study"]
