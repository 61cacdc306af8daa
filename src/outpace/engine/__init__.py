"""The step loop: budgets, schedule, propose, forward, verify, commit, observe."""
