"""A federation over Flower: apps, processes, the keys of nodes, and the gate of its server."""
