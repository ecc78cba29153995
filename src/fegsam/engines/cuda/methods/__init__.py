"""The `cuda` engine's rounds for methods beside plain averaging.

Plain averaging has kernels of its own in the package above. Here a round may have corrections,
weights, a server step, participation, rounding and unequal steps. `kernel` holds the loop over
rounds, `agents` the local steps of one thread's agents, `steps` one of them, `report` how an
agent's change enters the sums and `close` what the server does with these. `observe` makes a
round's first steps again for averages inside it, `draw` draws who takes part. The sums are exact
(`exact`), so that nothing depends on the order in which threads add.
"""
