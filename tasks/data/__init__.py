"""Where a task's examples come from: sources, file formats, and the memory-mapped cache."""
