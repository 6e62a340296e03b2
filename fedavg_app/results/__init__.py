"""What a training leaves: its history, folder, models and checkpoints, and reading them back."""
