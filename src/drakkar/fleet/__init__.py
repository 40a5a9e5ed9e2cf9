"""What a whole cluster has, who holds it, and what still fits: numbers over one snapshot (KEP-4381 objects only).

Nothing here asks a cluster or knows a vendor; a real cluster, the embedded one and a bundle somebody sent count alike.
"""
