"""The official client against a server: a stream, a form for the answer, and an expected answer.

pip install openai
outpace serve --model demo          # in another terminal
python examples/openai_client.py
"""

import os

from openai import OpenAI

url = os.environ.get("OUTPACE_URL", "http://127.0.0.1:8000")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("OUTPACE_KEY", "none"))
model = client.models.list().data[0].id

print("--- streamed")
stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Why is the sky blue? Two sentences."}],
    max_completion_tokens=80,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
for event in stream:
    for choice in event.choices:
        print(choice.delta.content or "", end="", flush=True)
    if event.usage is not None:
        record = event.metrics["speculative_decoding"]  # beside OpenAI's fields
        print(f"\n{event.usage.completion_tokens} tokens in {record['target_steps']} steps")

print("--- JSON that fits a schema")
schema = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer"}},
    "required": ["city", "inhabitants"],
    "additionalProperties": False,
}
reply = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "A large city and how many people live there, as JSON."}],
    response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
    max_completion_tokens=60,
    temperature=0,
)
print(reply.choices[0].message.content)

print("--- an edit whose result is mostly known")
text = "The library opens at nine. It closes at six. On Sundays it is closed."
reply = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": f"Change nine to ten, and repeat the rest: {text}"}],
    prediction={"type": "content", "content": text},
    extra_body={"speculative": {"num_speculative_tokens": 6}},  # or as the server decides
    max_completion_tokens=60,
    temperature=0,
)
details = reply.usage.completion_tokens_details
print(reply.choices[0].message.content)
print(f"{details.accepted_prediction_tokens} tokens came from the prediction")
