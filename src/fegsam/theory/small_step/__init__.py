"""The small-step law: the error of a long run to first order in the step size."""
