"""Many runs, several at a time, each in a process of its own."""
