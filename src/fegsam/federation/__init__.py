"""The same rule on real machines: agents that own their environments, and a server that averages
what they send.

`protocol` says what is sent and what it means; `flower` carries it.
"""
