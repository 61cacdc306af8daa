"""The server: OpenAI's protocol in front of an engine."""
