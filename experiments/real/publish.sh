#!/usr/bin/env bash
# The tables and pictures of docs/real.md from the rows of docs/results/real.json.
exec python -m experiments.real.page
