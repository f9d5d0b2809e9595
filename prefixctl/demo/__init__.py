"""The main job end to end on a small model made on the spot."""
