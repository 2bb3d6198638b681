"""What the command line shows on a terminal, and what it asks there."""
