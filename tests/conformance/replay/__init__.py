"""Replays recorded conversations with a Kubernetes API server.

The format of the files is described in README.md one folder up.
"""

from tests.conformance.replay.client import Client
from tests.conformance.replay.conversations import TROUBLE, replay_conversation
from tests.conformance.replay.sessions import replay_transcript
from tests.conformance.replay.values import Loader

__all__ = ["TROUBLE", "Client", "Loader", "replay_conversation", "replay_transcript"]
