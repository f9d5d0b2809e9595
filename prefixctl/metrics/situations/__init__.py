"""Situations that the rules must tell apart; each becomes a unit test for promtool."""
