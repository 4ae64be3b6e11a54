"""Signatures belong to one key and one payload."""

import pytest

from fedperf_shared.identity import (
    InvalidSignatureError,
    fingerprint,
    new_private_key,
    sign,
    verify,
)


def test_signature_verifies_only_for_its_key_and_payload() -> None:
    key, other = new_private_key(), new_private_key()
    signature = sign(key, b"payload")
    verify(key.public_key(), b"payload", signature)
    for public, payload in ((other.public_key(), b"payload"), (key.public_key(), b"payloae")):
        with pytest.raises(InvalidSignatureError):
            verify(public, payload, signature)


def test_key_fingerprints_are_short_stable_and_distinct() -> None:
    key, other = new_private_key().public_key(), new_private_key().public_key()
    assert fingerprint(key) == fingerprint(key) != fingerprint(other)
    assert len(fingerprint(key)) == 39
