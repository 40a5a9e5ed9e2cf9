"""Hardware: what a machine is (`machine`), its PCI functions (`pci`), and the trees of simulated ones (`tree`)."""
