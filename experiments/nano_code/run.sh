#!/usr/bin/env bash
# Programs in miniature, from the base to the picture: about half an hour on two CPU cores.
exec experiments/miniature.sh nano_code 104 "$@"
