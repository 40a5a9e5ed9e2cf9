"""Vendors: one package each; nothing outside a vendor's package and its drivers knows the vendor."""
