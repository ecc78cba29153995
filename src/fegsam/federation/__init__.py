"""The same rule on real machines: agents that own their environments, and a server that averages what they send.

`agent` (who learns), `wire` (what is said), `state` (what is kept), `node` and `server` (the two sides) and `experiment` (what
both agree on) know nothing of how messages travel; a transport carries opaque bytes between them.
"""
