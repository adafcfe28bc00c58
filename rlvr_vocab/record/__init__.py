"""The files of a run's folder: names, manifests, metrics, completions."""
