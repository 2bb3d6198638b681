"""What is judged: events, calls, and their codec."""
