"""AMD GPUs as the amdgpu driver and KFD show them in sysfs: discovery of GPUs and partitions, and what CDI injects."""
