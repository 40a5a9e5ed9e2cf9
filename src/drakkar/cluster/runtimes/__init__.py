"""What runs the containers of a pod, behind one protocol: `runc` proves an injection, `process` runs anywhere."""
