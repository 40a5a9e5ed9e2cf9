"""Hardware: what a machine is (`machine`), its PCI functions (`pci`), finding files below a root (`lookup`), and the
trees of simulated machines (`tree`).
"""
