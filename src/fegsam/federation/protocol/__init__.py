"""What is said in a federation and what it means, whatever carries it.

`agent` (who learns), `wire` (what is said), `state` (what is kept), `node` and `server` (the two
sides) and `experiment` (what both agree on) know no transport: one carries opaque bytes between
them.
"""
