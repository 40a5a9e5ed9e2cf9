"""resource.k8s.io objects as Kubernetes 1.37 treats them: validation, defaulting, conversion, what a write may change.

Pure functions over plain parsed JSON; the embedded API server, `lint` and `migrate` share them. Start with
`drakkar.api.validation` (which errors), `drakkar.api.defaulting`, `drakkar.api.conversion` and `drakkar.api.lifecycle`.
"""
