"""The embedded cluster: API server, controllers, scheduler, kubelet, runtimes, each behind its real protocol."""
