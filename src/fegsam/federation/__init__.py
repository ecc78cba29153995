"""Federations on real machines: agents own their environments, and a server averages parameters.

`protocol` defines the messages and their meaning; `flower` carries them.
"""
