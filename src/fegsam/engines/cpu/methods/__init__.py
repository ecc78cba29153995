"""The `cpu` engine's rounds for methods beside plain averaging.

Plain averaging has a loop of its own in `engines.cpu.advance`. Here a round may have corrections,
weights, a server step, participation, rounding and unequal steps. `rounds` holds the loop, `open`
and `close` what happens before and after the local steps, `agents` the local steps themselves.
Averages at times inside a round come from `observe`, which runs a round's first steps again.
"""
