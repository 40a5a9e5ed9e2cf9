"""Paths below an object that are not its status: scale, binding, eviction, tokens, finalize, logs and exec."""
