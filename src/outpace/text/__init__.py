"""Text in and out: tokenizers, chat templates, streaming decoders, stop strings."""
