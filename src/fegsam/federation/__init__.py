"""Federations on real machines: agents own their environments, and a server averages parameters.

`protocol` defines the messages and their meaning; `grpc` or `flower` carries them.
"""
