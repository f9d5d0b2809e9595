"""Engine launch settings in scripts, Dockerfiles, compose files, Helm values and manifests.

Nothing is executed. Every setting keeps its place in the file.
"""
