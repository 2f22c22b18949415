"""What an image holds, and how two differ."""
