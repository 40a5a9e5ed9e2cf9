"""A real Kubernetes from source: which versions, how they are built, where they are kept.

Kubernetes, etcd and containerd come through no package index as binaries, but they are ordinary Go modules. The two
folders beside this file pin them with everything below them; what is built is kept by the hash of that, outside the
clone.
"""
