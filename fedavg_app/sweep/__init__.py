"""Many runs, several at a time, each in its own process."""
