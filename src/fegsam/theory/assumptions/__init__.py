"""What the theorems ask of a problem: mixing, contraction and bounded noise, with their
constants."""
