"""The driver for NVIDIA GPUs, `gpu.nvidia.com`: classes, parameters, devices, preparation."""
