"""Tools and environments that a model may call in its turns."""
