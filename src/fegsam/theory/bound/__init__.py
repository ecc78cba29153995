"""What the theorems promise: their constants, their conditions, the error bound, and the
corollary's choices."""
