"""A sample of the kinds of text that models are asked for, to try things out on."""

from __future__ import annotations

SAMPLE = """\
The river rises in the hills above the town and reaches the sea after two hundred kilometres. For
most of the year it is slow and shallow, but in April, when the snow melts, it can rise by three
metres in a single night. The people who live along its banks have learned to watch the colour of
the water rather than its level: when it turns brown, they say, there are two days left.

def moving_average(values: list[float], size: int) -> list[float]:
    if size < 1:
        raise ValueError("size must be at least 1")
    result = []
    total = 0.0
    for index, value in enumerate(values):
        total += value
        if index >= size:
            total -= values[index - size]
        if index >= size - 1:
            result.append(total / size)
    return result

Question: A train leaves at 9:40 and arrives at 12:05. How long does the journey take?
Answer: From 9:40 to 12:00 it is 2 hours and 20 minutes, and then 5 more minutes. The journey takes
2 hours and 25 minutes.

Dear Ms. Okafor, thank you for your letter of 3 March. We are sorry to hear that the parcel arrived
damaged. A new one will be sent to you this week, free of charge. You do not need to return the
first one. If you have any further questions, please do not hesitate to contact us.
"""
