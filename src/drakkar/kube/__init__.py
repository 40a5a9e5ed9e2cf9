"""What every room needs of Kubernetes: quantities, selectors, resources, an API client with two transports, informers."""
