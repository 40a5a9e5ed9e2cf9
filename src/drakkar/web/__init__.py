"""The board: one page, on loopback, that shows a cluster's devices as they are now. Read-only."""
