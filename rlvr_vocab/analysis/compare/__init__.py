"""Two arms of a comparison: is the difference between them more than chance."""
