"""NVIDIA: GPU models and servers, MIG, XIDs, simulated machines, driver files, nvidia-smi, published devices."""
