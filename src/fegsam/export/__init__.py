"""Gets what was learned out of fegsam: as JSON, and as a Python module that needs nothing else."""

from fegsam.export.learned import Learned, learned_by, write_learned

__all__ = ["Learned", "learned_by", "write_learned"]
