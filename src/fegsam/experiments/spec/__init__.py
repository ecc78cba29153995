"""A study as a TOML file: its text, tables, problems, grid and cells. Needs pydantic."""

from fegsam.experiments.spec.study import EXAMPLE, Study, load_study, parse_study

__all__ = ["EXAMPLE", "Study", "load_study", "parse_study"]
