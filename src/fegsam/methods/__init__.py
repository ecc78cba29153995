"""How a round ends: what the server does with the results of the agents' local steps."""
