"""Studies: TOML specs, sweeps over their cells, executors, estimates over seeds.

Each part loads when it is imported: `spec` needs pydantic (``pip install 'fegsam[experiments]'``),
estimates do not.
"""
