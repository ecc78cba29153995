"""Flower as the carrier of a federation: its apps and processes, the keys of nodes, and the gate in
front of its server."""
