"""What people and other processes ask of runs: approvals and commands."""
