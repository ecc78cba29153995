"""What the paper's theorems say about a problem: their constants and the law of the output time."""

from __future__ import annotations

from fegsam.theory.output_time import OutputTimeDistribution, default_output_decay, output_time_distribution

__all__ = ["OutputTimeDistribution", "default_output_decay", "output_time_distribution"]
