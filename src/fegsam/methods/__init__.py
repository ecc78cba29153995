"""How a round goes: what the server makes of the agents' local steps."""
