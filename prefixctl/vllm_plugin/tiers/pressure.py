"""Back-pressure of the disk: what it cannot take in time is not stored, and host memory goes on."""

from __future__ import annotations

from typing import Any

from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector, DropStorePolicy

MOST_WAITING = 0.75
"""The part of host memory that may wait to be written; the rest is for what comes up."""


class WriteQueue(BackpressureDetector):  # type: ignore[misc]
    """Rows of host memory that wait for the disk; vLLM counts the stores that are dropped.

    A row stays where it is until it is written, so a slow disk would take all of host memory, and
    nothing could come up from the disk or down from the device.

    Attributes:
        rows: Rows of host memory; none are waited for until the tier says how many there are.
        waiting: Those that wait.
    """

    def __init__(self, policy: Any = None) -> None:
        super().__init__(policy=policy or DropStorePolicy())
        self.rows = 0
        self.waiting = 0

    def on_store_completed(self, elapsed_s: float, num_bytes: int) -> None:
        """How long a store took says nothing of a queue."""

    def is_under_pressure(self) -> bool:
        """Whether no more is taken."""
        return self.waiting > self.rows * MOST_WAITING

    def should_store(self, num_blocks: int) -> bool:
        """Whether so many rows may join; always if none wait."""
        if not self.waiting or self.waiting + num_blocks <= self.rows * MOST_WAITING:
            return True
        self.policy.on_store_skipped(num_blocks)
        return False

    def reset(self) -> None:
        """Host memory was emptied; the tier has ended its jobs before."""
        self.waiting = 0
        self.policy.reset()
