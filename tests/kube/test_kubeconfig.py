"""kubeconfig files are found and read as kubectl does."""

from pathlib import Path

import pytest

from drakkar.kube.kubeconfig import KubeconfigError, load

TEXT = """
apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u, namespace: team-a}
clusters:
- name: c
  cluster: {server: "https://127.0.0.1:1/", certificate-authority: ca.crt}
users:
- name: u
  user: {token: secret-word}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_bytes(b"pem")
    file = tmp_path / "config"
    file.write_text(TEXT)
    return file


def test_the_current_context(config: Path) -> None:
    found = load(config)
    assert (found.server, found.token, found.namespace, found.ca) == (
        "https://127.0.0.1:1", "secret-word", "team-a", b"pem",
    )  # fmt: skip


def test_several_files_are_one(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first"
    first.write_text("current-context: here\n")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{config}:{tmp_path / 'missing'}")
    assert load().server == "https://127.0.0.1:1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("current-context: here", "x: y"), "no current context"),
        (("current-context: here", "current-context: gone"), "no context named 'gone'"),
        (("cluster: c,", "cluster: gone,"), "no cluster named 'gone'"),
        (("certificate-authority: ca.crt", "certificate-authority: no.crt"), "cannot read certificate-authority"),
        (("certificate-authority: ca.crt", "certificate-authority-data: '###'"), "cannot read certificate-authority"),
        (("{token: secret-word}", "{exec: {command: x}}"), "credential plugin"),
        (("apiVersion: v1", "apiVersion: [v1"), "cannot read the kubeconfig"),
        ((TEXT, "- list"), "not a mapping"),
    ],
)
def test_every_defect_is_one_clear_error(config: Path, change: tuple[str, str], message: str) -> None:
    config.write_text(TEXT.replace(*change))
    with pytest.raises(KubeconfigError, match=message):
        load(config)


def test_no_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="does not exist") as caught:
        load(tmp_path / "nowhere")
    assert "drakkar up" in caught.value.next_step
