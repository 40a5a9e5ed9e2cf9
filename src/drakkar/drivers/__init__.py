"""Drivers: `kit` is the frame every driver stands in, `gpu` is the one for NVIDIA GPUs."""
