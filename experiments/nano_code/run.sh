#!/usr/bin/env bash
# Programs in miniature, from the base to the picture: about half an hour on two CPU cores. Tokens 28 and 119 are "Wait",
# after a space and at the beginning.
exec experiments/miniature.sh nano_code 104 '{"28": -100, "119": -100}' "$@"
