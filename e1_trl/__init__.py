"""Elastic Reasoning on TRL: budget-constrained GRPO with separate thinking and solution budgets."""
