"""Deciding from numbers how much to draft; no tensors here."""
