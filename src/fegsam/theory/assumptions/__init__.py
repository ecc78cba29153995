"""The assumptions of the theorems: mixing, contraction and bounded noise, with their constants."""
