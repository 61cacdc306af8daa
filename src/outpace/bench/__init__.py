"""Measuring what speculation brings: workloads, runs, figures, comparison and report."""
