"""The embedded cluster: store, API server, controllers, scheduler, kubelet and runtimes, each behind its real protocol."""
