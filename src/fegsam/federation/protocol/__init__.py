"""The protocol of a federation: its messages and their meaning, over any transport.

`wire` defines the messages, `state` the stored files, `node` and `server` the two sides, and
`experiment` what both agree on. None of them depends on a transport, which carries opaque bytes
between the two sides.
"""
