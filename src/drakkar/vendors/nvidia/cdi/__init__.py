"""NVIDIA's CDI specifications: what `nvidia-ctk cdi generate` 1.20.2 writes, found in the same way, in the same order.

`generate` is the whole; `driver`, `graphics`, `devices` and `modes` find things below a driver root, `hooks` spells the
hooks, `lookup`, `ld_cache` and `soname` look at files.
"""
