"""What a runtime runs beside a container before it starts: links, loader cache, permissions, driver settings.

A hook runs as root of the host, next to a file system that the image's author filled. Everything here is therefore
written for a hostile tree, uses only the standard library (``python -I``), and imports nothing else of Drakkar. The
same commands exist as one small static program for hosts without Python, in ``native/``; the same cases hold for both
(``docs/decisions/hook-program.md``). Names and options are those of ``nvidia-cdi-hook`` 1.20, so either can be named by
a specification. OCI runtime specification, "POSIX-platform Hooks"; CDI SPEC.md 1.1.0, "hooks".
"""
