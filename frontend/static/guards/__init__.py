"""Guards: conditions under which a recorded call may be replayed, made of what the call was observed to read."""
