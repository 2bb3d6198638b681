"""What every adapter stands on, ours and those of third parties."""
