#!/usr/bin/env bash
# The paper in miniature, from the base to its picture: about eight minutes on two CPU cores.
exec experiments/miniature.sh nano 32 "$@"
