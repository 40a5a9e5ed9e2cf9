"""The embedded control plane: store, API server, controllers, scheduler, kubelets and runtimes, each its own contract."""
