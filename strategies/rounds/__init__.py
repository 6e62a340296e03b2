"""What runs a strategy's rounds: messages and their checks, clients' memory, the runners."""
