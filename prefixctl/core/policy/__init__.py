"""Eviction policies over KV blocks: one code for the simulator and for the engine's tiers."""
