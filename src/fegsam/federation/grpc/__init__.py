"""A federation over gRPC: one long-lived stream per node, in mutual TLS."""

import os

# gRPC's own log has a line for each failed handshake, which strangers could fill a disk with.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
