"""What the technical note computes: each module returns its numbers by name."""
