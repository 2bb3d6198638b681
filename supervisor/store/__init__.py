"""How records are kept: the codec, paging, the store in memory."""
