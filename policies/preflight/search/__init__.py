"""What a stack lets happen, searched on a finite view of it."""
