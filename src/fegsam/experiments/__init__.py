"""Studies: TOML specs, sweeps over their cells, executors, estimates over seeds.

Import each part by itself: `spec` needs pydantic (``pip install 'fegsam[experiments]'``), estimates
do not.
"""
