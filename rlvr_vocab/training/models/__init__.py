"""The models that train: adapters, quantized layers, the embedded model and its warm-up."""
