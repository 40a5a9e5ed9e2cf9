"""What every room needs of Kubernetes: quantities, selectors, resources, a client, informers."""
