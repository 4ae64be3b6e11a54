"""A membership whose coordinator is only a key."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.node.enrollment import Membership


def membership_with(coordinator: ec.EllipticCurvePrivateKey) -> Membership:
    """Return a membership whose receipts are signed with this key."""
    public = coordinator.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Membership(b"\1" * 16, b"", b"", public, "there:1", "there:2")
