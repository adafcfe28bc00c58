"""The configuration room: Hydra entry points and conf/; the only place that reads configuration."""
