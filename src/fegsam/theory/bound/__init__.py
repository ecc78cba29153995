"""The theorems: their constants and conditions, the error bound, and the corollary's choices."""
