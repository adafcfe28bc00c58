"""What each command does, once its configuration has been checked."""
