"""One embedded kubelet per simulated node: the Node object, DRA plugins, pods, their containers and their streams."""
