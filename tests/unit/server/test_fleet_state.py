"""Tests of the fleet state: one node's reply occupies bounded memory of the coordinator."""

from typing import TYPE_CHECKING, cast

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import InMemoryLinkState
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedperf_server.endpoints.gateway import MAX_REPLY_PARTS, FleetState

if TYPE_CHECKING:
    from flwr.app import Message


def tree_of(parts: int, *, deep: bool) -> ObjectTree:
    """Return a reply of `parts` objects, either siblings or nested in each other."""
    if not deep:
        return ObjectTree(object_id="0", children=[ObjectTree() for _ in range(parts - 1)])
    tree = ObjectTree()
    for _ in range(parts - 1):
        tree = ObjectTree(children=[tree])
    return tree


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("parts", "stored"), [(1, True), (MAX_REPLY_PARTS, True), (MAX_REPLY_PARTS + 1, False)]
)
def test_fleet_state_given_a_reply_of_too_many_parts_refuses_it(
    parts: int, stored: bool, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        InMemoryLinkState, "store_message_and_object_tree", lambda *_: (True, ["asked for"])
    )
    state = FleetState(NoOpFederationManager(), ObjectStoreFactory(":flwr-in-memory:").store())
    message = cast("Message", object())  # only its number of parts matters
    found = state.store_message_and_object_tree(message, tree_of(parts, deep=deep), "session")
    assert found == ((True, ["asked for"]) if stored else (False, []))
