"""What several test files share. Every test imports it as `helpers.<module>`.

`tests/` is on the path: pytest sets it (`pythonpath` in pyproject.toml), and a process that a test
starts gets it from `helpers.processes.python_environment`. The oracle stays beside this package, in
`tests/pseudocode.py` and `tests/cases.py`.
"""
