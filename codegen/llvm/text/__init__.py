"""The text of LLVM IR: functions, types, vectors, ranges of tiles. Knows no op."""
