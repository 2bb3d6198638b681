"""Old policy files rewritten in the current spelling, comments kept."""
