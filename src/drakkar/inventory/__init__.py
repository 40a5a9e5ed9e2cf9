"""Inventory: published devices (`devices`), pools cut into slices (`slices`), publishing and staleness."""
