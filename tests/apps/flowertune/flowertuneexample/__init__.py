"""flowertuneexample: A Flower app that fine-tunes a language model with LoRA."""
