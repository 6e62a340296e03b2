"""What runs on a client: the process's task, model and data, and the mods around its handlers."""
