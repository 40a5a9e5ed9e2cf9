"""`drakkar cdi`: look at CDI files, make them, check them, and see what they do to a container.

One file per command, loaded when it runs: `drakkar cdi list` must answer faster than a person notices, and what a
generator imports is nothing to an injection.
"""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("devices:list_devices", "List the devices that can be resolved, and the file of each."),
    "devices": ("devices:devices", "Print the names of the devices that can be resolved."),
    "show": ("devices:show", "Show what a device changes in a container, and which line of which file says so."),
    "validate": ("validate:command", "Check files; every problem with its line and column."),
    "generate": ("generate:command", "Print or write the specification of this host's GPUs."),
    "transform": ("transform:command", "Change a specification's root."),
    "watch": ("watch:command", "Keep a specification true while driver, MIG devices or nodes change."),
    "run": ("run:command", "Start a container that has devices, with runc."),
    "doctor": ("doctor:command", "Say why a device does not resolve or a container with it would not start."),
    "inject": ("inject:command", "Print an OCI configuration as it is with devices injected."),
}
