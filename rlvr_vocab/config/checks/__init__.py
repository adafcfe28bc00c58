"""What is refused before anything heavy loads."""
