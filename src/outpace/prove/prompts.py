"""Short texts of our own to continue, most of which repeat themselves: something to draft from."""

from __future__ import annotations

PROMPTS = (
    "Red, blue, green. Red, blue, green. Red, blue, green. Red, blue,",
    "def area(a, b):\n    return a * b\n\ndef volume(a, b, c):\n    return",
    "The ferry leaves at nine. The ferry returns at five. On Sundays the ferry leaves at",
    "Monday: soup and bread. Tuesday: rice and beans. Wednesday: soup and",
    '{"name": "Ada", "city": "London"}, {"name": "Emmy", "city": "Erlangen"}, {"name":',
    "Question: What is a bridge? Answer: A bridge is a structure that",
    "One, two, three, four. One, two, three, four, five. One, two, three, four, five,",
    "Once upon a time there was an old clockmaker who lived near the harbour. Once upon a",
    "The cat sat on the mat. The dog sat on the rug. The bird sat on the",
    "Dear Ms Berg, thank you for your letter of 3 May. Thank you also for",
)

# What follows is open, and its words have occurred before: a drafter has something to say.
DISTRIBUTION_PROMPT = PROMPTS[7]

# For samples: texts that can go on in a handful of ways.
OPEN_PROMPTS = (
    "Heads, tails, heads, heads, tails, tails, heads, tails, heads,",
    "Yes. No. No. Yes. No. Yes. Yes. No. Yes. No.",
    "left right right left left right left right right left",
    "A B B A A B A B B A A B",
)
