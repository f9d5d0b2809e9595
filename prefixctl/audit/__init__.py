"""Isolation between tenants, tested."""
