"""The function libraries of Kubernetes' CEL environment, one file each."""
