"""Custom resources beyond their shape: rules in CEL (KEP-2876), and what is wrong with a definition that has them."""
