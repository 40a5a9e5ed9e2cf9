"""Accept headers."""

from __future__ import annotations

import pytest

from drakkar.cluster.apiserver.negotiation import OBJECT_TYPES, negotiate
from drakkar.cluster.apiserver.statuses import StatusError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "media_type", "convert"),
    [
        ("", "application/json", ""),
        ("*/*", "application/json", ""),
        ("application/*", "application/json", ""),
        ("application/yaml", "application/yaml", ""),
        (f"{TABLE},application/json", "application/json", "Table"),
        (f"application/json;as=Nothing;v=v1;g=meta.k8s.io,{TABLE}", "application/json", "Table"),
        ("application/json;q=0.1,application/yaml;q=0.9", "application/yaml", ""),
        ("text/html,application/json;q=0.5", "application/json", ""),
        ("application/json;q=bad", "application/json", ""),
    ],
)
def test_what_is_answered(accept: str, media_type: str, convert: str) -> None:
    form = negotiate(accept, OBJECT_TYPES)
    assert (form.media_type, form.convert) == (media_type, convert)


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        ("text/html", "406: Not Acceptable"),
        (";;;", "406: Not Acceptable"),
        ("application/json;as=Nothing;v=v1;g=meta.k8s.io", "only the following media types are accepted"),
    ],
)
def test_what_is_refused(accept: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        negotiate(accept, OBJECT_TYPES)
    assert caught.value.code == 406 and caught.value.message.startswith(message)
