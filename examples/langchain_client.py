"""LangChain against a server.

pip install langchain-openai
outpace serve --model demo          # in another terminal
python examples/langchain_client.py
"""

import os

from langchain_openai import ChatOpenAI

url = os.environ.get("OUTPACE_URL", "http://127.0.0.1:8000")
model = ChatOpenAI(
    base_url=f"{url}/v1",
    api_key=os.environ.get("OUTPACE_KEY", "none"),
    model=os.environ.get("OUTPACE_MODEL", "demo"),
    temperature=0,
    max_tokens=60,
    # What OpenAI's API does not have goes here.
    extra_body={"speculative": {"drafter": "ngram"}},
)
for piece in model.stream("Name three rivers in Africa."):
    print(piece.content, end="", flush=True)
print()
