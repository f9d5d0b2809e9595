"""Chat templates measured by rendering them: what they do to the shared prefix."""
