"""The target model: configuration, weights, decoder and attention; it knows nothing of requests."""
