"""Alert and recording rules for Prometheus."""
