"""An abstract reading of templates: what is printed, in which order, and how often it changes."""
