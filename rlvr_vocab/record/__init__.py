"""What a run writes into its folder: places, manifests, metric rows, completions."""
