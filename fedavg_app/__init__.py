"""The Flower app: it joins a strategy and a task, and runs the rounds."""
