"""Writing a specification file: checked first, never half visible, readable by every consumer.

The text goes to a temporary file beside the target and is renamed over it, so that a runtime which reads at that
moment sees the old file or the new one. Mode 0644: the reference library's 0600 keeps rootless runtimes out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .emit import to_json, to_yaml
from .errors import CdiError
from .names import quote, split_kind
from .spec import CdiSpec

__all__ = ["remove_spec", "spec_file_name", "transient_spec_file_name", "write_spec"]

_FILE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o755
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_spec(directory: str | Path, file_name: str, spec: CdiSpec | Mapping[str, Any]) -> Path:
    """Writes ``spec`` as ``directory/file_name`` atomically and returns the path.

    Args:
        directory: made (0755) if missing.
        file_name: a bare name; ``.yaml`` is appended unless it ends in ``.json`` or ``.yaml``.
        spec: a loaded specification, or plain JSON that is checked first.

    Raises:
        CdiError: the name or the content is invalid, or the directory cannot be written.
    """
    checked = spec if isinstance(spec, CdiSpec) else CdiSpec.from_object(spec)
    target = _target(directory, file_name)
    text = to_json(checked.to_dict()) if target.suffix == ".json" else to_yaml(checked.to_dict())
    try:
        try:
            _replace(target, text)
        except FileNotFoundError:
            target.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            _replace(target, text)
    except (FileExistsError, NotADirectoryError):
        raise CdiError(
            f"failed to create the directory of {target}: not a directory", file=str(target), reason="NotWritten"
        ) from None
    except OSError as error:
        raise CdiError(
            f"failed to write CDI specification {target}: {_text(error)}", file=str(target), reason="NotWritten"
        ) from None
    return target


def remove_spec(directory: str | Path, file_name: str) -> None:
    """Removes ``directory/file_name``; a file that is not there is fine.

    Raises:
        CdiError: the name is invalid or the file cannot be removed.
    """
    target = _target(directory, file_name)
    try:
        target.unlink(missing_ok=True)
    except NotADirectoryError:
        return
    except OSError as error:
        raise CdiError(
            f"failed to remove CDI specification {target}: {_text(error)}", file=str(target), reason="NotRemoved"
        ) from None


def spec_file_name(kind: str) -> str:
    """``vendor-class`` for a kind: the name under which a static specification is written.

    Raises:
        CdiError: the kind has no vendor or no class.
    """
    vendor, device_class = split_kind(kind)
    if not vendor:
        raise CdiError(f"invalid vendor/class {quote(kind)} in Spec", reason="InvalidName")
    return f"{vendor}-{device_class}"


def transient_spec_file_name(kind: str, transient_id: str) -> str:
    """``vendor-class_ID`` for something that lives as long as, say, a claim; slashes of the id become ``_``.

    Raises:
        CdiError: the kind has no vendor or no class.
    """
    return f"{spec_file_name(kind)}_{transient_id.replace('/', '_')}"


def _target(directory: str | Path, file_name: str) -> Path:
    if not file_name or "/" in file_name or "\0" in file_name or file_name in (".", ".."):
        raise CdiError(
            f"invalid file name {quote(file_name)}",
            reason="InvalidName",
            expected="the bare name of a file in the directory",
        )
    suffix = "" if file_name.endswith((".json", ".yaml")) else ".yaml"
    return Path(directory) / (file_name + suffix)


def _replace(target: Path, text: str) -> None:
    # Random rather than the process id: drivers in containers that share the directory are all process 1.
    temporary = f"{target.parent}/spec.{os.urandom(8).hex()}.tmp"
    descriptor = os.open(temporary, _NEW_FILE, _FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
            os.fchmod(descriptor, _FILE_MODE)
        os.replace(temporary, target)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
