"""The state of all rules over one session: index, program, state, snapshots, monitor."""
