"""vLLM's cryptographic block hash functions by name (0.32, ``vllm/utils/hashing.py``)."""

from __future__ import annotations

import hashlib
import pickle

import cbor2

from prefixctl.core.keys import HashFunction
from prefixctl.errors import InputError


def _sha256(value: object) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def _sha256_cbor(value: object) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


HASH_FUNCTIONS: dict[str, HashFunction] = {"sha256": _sha256, "sha256_cbor": _sha256_cbor}


def hash_function(name: str) -> HashFunction:
    """The hash function that a server runs with ``--prefix-caching-hash-algo name``.

    ``sha256`` hashes a pickle, so it agrees only between equal Python versions; ``sha256_cbor``
    is portable.

    Raises:
        InputError: For a name that cannot be computed offline.
    """
    try:
        return HASH_FUNCTIONS[name]
    except KeyError:
        known = ", ".join(HASH_FUNCTIONS)
        raise InputError(f"no offline hash for '{name}'", hint=f"choose {known}") from None
