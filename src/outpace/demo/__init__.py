"""The demonstration: a prompt for each kind of request, and what speculation does with it."""
