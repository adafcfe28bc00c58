"""The files of a run's folder: names, manifests, inventory, metrics, completions."""
