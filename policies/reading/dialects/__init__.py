"""Other spellings of policies in use, rewritten as this one."""
